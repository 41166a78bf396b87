#include <gmock/gmock.h>

#include <random>

#include "checkpoint/safetensors.hpp"
#include "tests/checkpoint/scratch.hpp"
#include "tests/soak.hpp"

// Case C061. A file is bytes from outside: the reader accepts it or throws DataError.
namespace sw {
namespace {

using sw::testing::bytes_of;
using sw::testing::data_error_of;
using ::testing::HasSubstr;

std::string length_bytes(std::uint64_t length) {
  std::string text(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) {
    text[i] = static_cast<char>((length >> (8 * i)) & 0xffU);
  }
  return text;
}

std::string file_of(const std::string& header, std::size_t data_bytes) {
  return length_bytes(header.size()) + header + std::string(data_bytes, 'd');
}

std::string entry(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return fmt::format(R"({{"dtype":"{}","shape":{},"data_offsets":{}}})", dtype, shape, offsets);
}

/// One tensor "x" with eight bytes of data behind the header.
std::string one(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return file_of(fmt::format(R"({{"x":{}}})", entry(dtype, shape, offsets)), 8);
}

std::string two(std::string_view first_offsets, std::string_view second_offsets,
                std::size_t data_bytes) {
  return file_of(fmt::format(R"({{"x":{},"y":{}}})", entry("U8", "[4]", first_offsets),
                             entry("U8", "[4]", second_offsets)),
                 data_bytes);
}

struct Hostile {
  std::string what;
  std::string file;
  std::string complaint;
};

std::vector<Hostile> hostile_files() {
  const std::string good = one("F32", "[2]", "[0,8]");
  const std::string rest = good.substr(8);
  std::vector<Hostile> files{
      {"empty file", "", "too few"},
      {"seven bytes", std::string(7, '\0'), "too few"},
      {"length 0, nothing else", length_bytes(0), "does not begin with '{'"},
      {"length 0", length_bytes(0) + rest, "does not begin with '{'"},
      {"length 7", length_bytes(7) + rest, "not valid JSON"},
      {"length 2^63", length_bytes(1ULL << 63U) + rest, "more than the 100000000 allowed"},
      {"length 2^64-1", length_bytes(~0ULL) + rest, "more than the 100000000 allowed"},
      {"length 2^64-8 wraps to the file's end", length_bytes(~7ULL) + rest, "more than the"},
      {"length above the cap", length_bytes(100'000'001) + rest, "more than the 100000000 allowed"},
      {"length at the cap, file short", length_bytes(100'000'000) + rest, "the file was cut"},
      {"length one more than the file", length_bytes(rest.size() + 1) + rest, "the file was cut"},
      {"length swallows the data", length_bytes(rest.size()) + rest, "not valid JSON"},
      {"no tensors, trailing bytes", file_of("{}", 3), "3 bytes belong to nothing"},
      {"an array", file_of("[]", 0), "does not begin with '{'"},
      {"a space before the object", file_of(" {}", 0), "does not begin with '{'"},
      {"an unclosed object", file_of("{", 0), "not valid JSON"},
      {"text after the object", file_of("{}x", 0), "not valid JSON"},
      {"NUL after the object", file_of(std::string("{}\0", 3), 0), "not valid JSON"},
      {"nesting bomb of arrays", file_of("{\"x\":" + std::string(100'000, '['), 0),
       "nested deeper"},
      {"nesting bomb of objects",
       [] {
         std::string header;
         for (int i = 0; i < 100'000; ++i) {
           header += "{\"x\":";
         }
         return file_of(header, 0);
       }(),
       "nested deeper"},
      {"invalid UTF-8 in a name", file_of("{\"\xff\":" + entry("U8", "[0]", "[0,0]") + "}", 0),
       "not valid JSON"},
      {"the same tensor twice",
       file_of(fmt::format(R"({{"x":{0},"x":{0}}})", entry("U8", "[4]", "[0,4]")), 4), "twice"},
      {"the same tensor twice, once escaped",
       file_of(fmt::format(R"({{"x":{0},"\u0078":{0}}})", entry("U8", "[4]", "[0,4]")), 4),
       "twice"},
      {"a field twice",
       file_of(R"({"x":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1),
       "twice"},
      {"metadata twice", file_of(R"({"__metadata__":{},"__metadata__":{}})", 0), "twice"},
      {"metadata of a number", file_of(R"({"__metadata__":{"a":1}})", 0), "is not a string"},
      {"metadata no object", file_of(R"({"__metadata__":"a"})", 0), "is not an object"},
      {"an entry that is a list", file_of(R"({"x":[]})", 0), "not an object"},
      {"no dtype", file_of(R"({"x":{"shape":[0],"data_offsets":[0,0]}})", 0), "must all be there"},
      {"no shape", file_of(R"({"x":{"dtype":"U8","data_offsets":[0,0]}})", 0), "must all be there"},
      {"no offsets", file_of(R"({"x":{"dtype":"U8","shape":[0]}})", 0), "must all be there"},
      {"an unknown field",
       file_of(R"({"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"z":0}})", 0), "unknown key"},
      {"a dtype that is a number",
       file_of(R"({"x":{"dtype":5,"shape":[0],"data_offsets":[0,0]}})", 0), "not a string"},
      {"unknown dtype", one("F31", "[2]", "[0,8]"), "unknown dtype 'F31'"},
      {"dtype in small letters", one("f32", "[2]", "[0,8]"), "unknown dtype 'f32'"},
      {"shape that is a number", one("F32", "2", "[0,8]"), "not a list"},
      {"negative size", one("F32", "[-2]", "[0,8]"), "not a whole number"},
      {"two negative sizes", one("F32", "[-1,-2]", "[0,8]"), "not a whole number"},
      {"size 2.0", one("F32", "[2.0]", "[0,8]"), "not a whole number"},
      {"size 1e30", one("F32", "[1e30]", "[0,8]"), "not a whole number"},
      {"size as text", one("F32", "[\"2\"]", "[0,8]"), "not a whole number"},
      {"size null", one("F32", "[null]", "[0,8]"), "not a whole number"},
      {"size 2^64", one("F32", "[18446744073709551616]", "[0,8]"), "not a whole number"},
      {"product of the shape wraps to 2", one("F32", "[4294967296,4294967296,2]", "[0,8]"),
       "does not fit in 63 bits"},
      {"product times size of the type wraps", one("F64", "[2305843009213693953]", "[0,8]"),
       "does not fit in 63 bits"},
      {"65 dims", one("F32", fmt::format("[{}]", fmt::join(std::vector<int>(65, 1), ",")), "[0,4]"),
       "at most 64 sizes"},
      {"one offset", one("F32", "[2]", "[0]"), "not a pair"},
      {"three offsets", one("F32", "[2]", "[0,8,8]"), "not a pair"},
      {"negative offset", one("F32", "[2]", "[-8,0]"), "not a whole number"},
      {"fractional offset", one("F32", "[2]", "[0,8.0]"), "not a whole number"},
      {"offset 2^64-1", one("F32", "[2]", "[0,18446744073709551615]"), "not a whole number"},
      {"offsets reversed", one("F32", "[2]", "[8,0]"), "do not lie in order"},
      {"end past the file", one("F32", "[4]", "[0,16]"), "do not lie in order inside the 8 bytes"},
      {"shape larger than its bytes", one("F32", "[3]", "[0,8]"), "needs 12"},
      {"shape smaller than its bytes", one("F32", "[1]", "[0,8]"), "needs 4"},
      {"a scalar with two elements' bytes", one("F32", "[]", "[0,8]"), "needs 4"},
      {"a hole at the start", one("U8", "[4]", "[4,8]"), "there is a hole"},
      {"trailing bytes", one("U8", "[4]", "[0,4]"), "4 bytes belong to nothing"},
      {"a hole between", two("[0,4]", "[5,9]", 9), "there is a hole"},
      {"overlap by one", two("[0,4]", "[3,7]", 7), "they overlap"},
      {"the same bytes twice", two("[0,4]", "[0,4]", 4), "they overlap"},
  };
  return files;
}

TEST(HostileSafetensors, EveryCraftedFileIsRefusedWithItsReason) {
  EXPECT_NO_THROW((void)parse_safetensors(bytes_of(one("F32", "[2]", "[0,8]")), "good"));
  EXPECT_NO_THROW((void)parse_safetensors(bytes_of(two("[0,4]", "[4,8]", 8)), "good"));
  const auto files = hostile_files();
  EXPECT_GE(files.size(), 40U);
  for (const Hostile& hostile : files) {
    const std::string error =
        data_error_of([&] { (void)parse_safetensors(bytes_of(hostile.file), "h.safetensors"); });
    EXPECT_THAT(error, HasSubstr("h.safetensors")) << hostile.what;
    EXPECT_THAT(error, HasSubstr(hostile.complaint)) << hostile.what;
  }
}

TEST(HostileSafetensors, ThePlaceInTheFileDoesNotDecideTheOrderOfTheHeader) {
  // The format fixes no order of the names: only the byte ranges must tile the data.
  EXPECT_NO_THROW((void)parse_safetensors(bytes_of(two("[4,8]", "[0,4]", 8)), "good"));
}

/// What must hold of anything that was accepted, computed another way than by the reader.
void expect_sound(const SafetensorsContent& content, std::span<const std::byte> file) {
  std::size_t total = 0;
  for (const auto& [name, view] : content.tensors) {
    auto expected = static_cast<std::size_t>(size_of(view.dtype));
    for (const std::int64_t dim : view.shape) {
      expected *= static_cast<std::size_t>(dim);
    }
    EXPECT_EQ(view.bytes.size(), expected) << name;
    EXPECT_GE(view.bytes.data(), file.data()) << name;
    EXPECT_LE(view.bytes.data() + view.bytes.size(), file.data() + file.size()) << name;
    total += expected;
  }
  EXPECT_LE(total, file.size());
}

std::string mutated(std::string file, std::mt19937_64& random) {
  static constexpr std::string_view kPieces[] = {
      "-1", "[", "{", "\"",  "1e99",   "18446744073709551615", "9223372036854775807",
      ",",  ":", "0", "F32", "\\u0000"};
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  for (std::size_t count = 1 + below(4); count > 0 && !file.empty(); --count) {
    const std::size_t at = below(file.size());
    switch (below(6)) {
      case 0:
        file[at] = static_cast<char>(random());
        break;
      case 1:
        file[at] = static_cast<char>(file[at] ^ (1 << below(8)));
        break;
      case 2:
        file.erase(at, 1 + below(8));
        break;
      case 3:
        file.insert(at, kPieces[below(std::size(kPieces))]);
        break;
      case 4:
        file.resize(at);
        break;
      default:
        file[8 + at % 120 < file.size() ? 8 + at % 120 : at] = static_cast<char>('0' + below(10));
        break;
    }
  }
  return file;
}

TEST(HostileSafetensors, MutatedFilesAreReadSoundlyOrRefused) {
  const std::string seed_file =
      file_of(fmt::format(R"({{"__metadata__":{{"format":"pt"}},"a.weight":{},"b":{},"c":{}}})",
                          entry("F32", "[2,3]", "[0,24]"), entry("BF16", "[]", "[24,26]"),
                          entry("I64", "[0,5]", "[26,26]")),
              26);
  const std::int64_t runs = sw::testing::runs(20'000, 5'000'000);
  std::mt19937_64 random(1);
  std::int64_t accepted = 0;
  for (std::int64_t run = 0; run < runs; ++run) {
    const std::string file = mutated(seed_file, random);
    try {
      const SafetensorsContent content = parse_safetensors(bytes_of(file), "mutated");
      expect_sound(content, bytes_of(file));
      ++accepted;
    } catch (const DataError&) {  // the one permitted refusal
    }
  }
  EXPECT_GT(accepted, 0) << "mutations that only touch values must pass";
  EXPECT_LT(accepted, runs);
}

}  // namespace
}  // namespace sw
