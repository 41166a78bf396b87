#include <memory>

#include "base/error.hpp"
#include "cli/command.hpp"

namespace sw {
namespace {

struct ReportArguments {
  std::string folder;
  std::string out;
  bool json = false;
};

}  // namespace

Action add_report(Arguments& arguments) {
  auto a = std::make_shared<ReportArguments>();
  arguments.positional("RUN_DIR", a->folder, "The run folder.");
  arguments.option("--out", a->out, "FILE.html",
                   "Where the page goes; default: RUN_DIR/report.html.");
  arguments.json(a->json);
  return [a](const Environment&) -> int { throw ConfigError("report is not in this version"); };
}

}  // namespace sw
