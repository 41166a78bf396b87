#include "cli/rank_payload.hpp"

#include "base/error.hpp"
#include "base/json.hpp"
#include "cli/config.hpp"
#include "train/launch.hpp"

namespace sw {

std::string to_payload(const TrainingPlan& plan) {
  Json json;
  json["run_file"] = to_toml(plan.options);
  json["run_folder"] = plan.run_folder.string();
  json["checkpoint"] = plan.checkpoint;
  json["run_id"] = plan.run_id;
  json["session_id"] = plan.session_id;
  json["peak_flops_per_s"] = plan.peak_flops_per_s;
  json["first_step"] = plan.first_step;
  return json.dump();
}

TrainingPlan plan_from_payload(const std::string& payload) {
  const Json json = parse_json(payload, "the launcher's message");
  TrainingPlan plan;
  plan.options = parse_run_options(json.at("run_file").get<std::string>(), "run.toml");
  plan.run_folder = json.at("run_folder").get<std::string>();
  plan.checkpoint = json.at("checkpoint").get<std::string>();
  plan.run_id = json.at("run_id").get<std::string>();
  plan.session_id = json.at("session_id").get<std::string>();
  plan.peak_flops_per_s = json.at("peak_flops_per_s").get<double>();
  plan.first_step = json.at("first_step").get<std::int64_t>();
  return plan;
}

int run_rank_process(int argc, const char* const* argv) {
  const RankStart start = start_rank(argc, argv);
  return run_rank(start, [&](World& world) {
    SW_CHECK(start.role == kTrainRole, "no rank does '{}'", start.role);
    return train_rank(world, plan_from_payload(start.payload));
  });
}

}  // namespace sw
