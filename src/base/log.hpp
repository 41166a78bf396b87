#pragma once

#include <string_view>

namespace sw {

/// One line on standard error about something that went wrong and that the run survives: what,
/// where, and what happens next. Safe from any thread.
void warn(std::string_view message);

}  // namespace sw
