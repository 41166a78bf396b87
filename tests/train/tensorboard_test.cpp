#include "train/tensorboard.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.hpp"

namespace sw {
namespace {

TEST(Crc32c, HasTheValuesOfItsStandard) {
  // RFC 3720, appendix B.4.
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  std::string rising;
  for (char byte = 0; byte < 32; ++byte) {
    rising += byte;
  }
  EXPECT_EQ(crc32c(rising), 0x46dd794eU);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
}

TEST(TensorBoard, AnEventIsWhatThePythonPackageWrites) {
  // tests/fixtures/tensorboard_event.py, with tensorboard 2.21: SerializeToString of
  // Event(wall_time=1.5, step=300, summary=Summary(value=[loss = 0.25, lr = -2])).
  const std::string expected(
      "\x09\x00\x00\x00\x00\x00\x00\xf8\x3f\x10\xac\x02\x2a\x18"
      "\x0a\x0b\x0a\x04loss\x15\x00\x00\x80\x3e"
      "\x0a\x09\x0a\x02lr\x15\x00\x00\x00\xc0",
      38);
  EXPECT_EQ(scalar_event(1.5, 300, {{"loss", 0.25}, {"lr", -2}}), expected);
}

TEST(TensorBoard, ARecordCarriesItsLengthAndTwoMaskedChecksums) {
  const std::string record = tfrecord("123456789");
  ASSERT_EQ(record.size(), 8 + 4 + 9 + 4U);
  EXPECT_EQ(record.substr(0, 8), std::string("\x09\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(record.substr(12, 9), "123456789");
  // Rotate right by 15, add 0xa282ead8: 0xe3069283 -> 0x2507c60d + 0xa282ead8 = 0xc78ab0e5.
  EXPECT_EQ(record.substr(21), std::string("\xe5\xb0\x8a\xc7", 4));
}

}  // namespace
}  // namespace sw
