#pragma once

#include <string>

namespace sw {

/// The message of the error of kind `E` that the call ends in; "" if it ends in none.
template <typename E, typename Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

}  // namespace sw
