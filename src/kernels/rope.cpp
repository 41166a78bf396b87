#include "kernels/rope.hpp"

#include <cmath>
#include <numbers>

#include "base/error.hpp"

namespace sw::kernels {
namespace {

/// Long wavelengths are divided by the factor, short ones kept, those between blended.
double llama3(double frequency, const RopeParameters& p) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < p.original_length / p.high_frequency_factor) return frequency;
  if (wavelength > p.original_length / p.low_frequency_factor) return frequency / p.factor;
  const double blend = (p.original_length / wavelength - p.low_frequency_factor) /
                       (p.high_frequency_factor - p.low_frequency_factor);
  return (1 - blend) * frequency / p.factor + blend * frequency;
}

}  // namespace

std::vector<double> rope_frequencies(const RopeParameters& parameters, std::int64_t head_size) {
  SW_CHECK(head_size % 2 == 0, "rope turns pairs, and a head of {} has an odd size", head_size);
  std::vector<double> frequencies;
  for (std::int64_t pair = 0; pair < head_size / 2; ++pair) {
    double frequency = std::pow(parameters.theta,
                                -2.0 * static_cast<double>(pair) / static_cast<double>(head_size));
    if (parameters.scaling == "linear") {
      frequency /= parameters.factor;
    } else if (parameters.scaling == "llama3") {
      frequency = llama3(frequency, parameters);
    } else {
      SW_CHECK(parameters.scaling.empty(), "rope scaling \"{}\" is not known", parameters.scaling);
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

}  // namespace sw::kernels
