#include <fmt/format.h>

#include <memory>

#include "base/error.hpp"
#include "cli/command.hpp"
#include "cli/print_json.hpp"
#include "report/run_report.hpp"

namespace sw {
namespace {

struct ReportArguments {
  std::string folder;
  std::string out;
  bool json = false;
};

int report(const ReportArguments& a) {
  if (!a.out.empty()) {
    throw ConfigError("report --out: the page is not in this version; without it, text is printed");
  }
  const RunReport result = read_run_report(a.folder);
  if (a.json) {
    print_json(to_json(result));
  } else {
    fmt::print("{}", to_text(result));
  }
  return planned_equals_measured(result).value_or(true) ? kDone : kComparisonFailed;
}

}  // namespace

Action add_report(Arguments& arguments) {
  auto a = std::make_shared<ReportArguments>();
  arguments.positional("RUN_DIR", a->folder, "The run folder.");
  arguments.option("--out", a->out, "FILE.html", "A page instead of text.");
  arguments.json(a->json);
  return [a](const Environment&) { return report(*a); };
}

}  // namespace sw
