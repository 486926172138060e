// What `kvring plan` prints.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "planner/plan.h"

namespace kvring::cli {

nlohmann::ordered_json plan_json(const PlanQuery& query, const Plan& plan);
std::string plan_text(const PlanQuery& query, const Plan& plan);

}  // namespace kvring::cli
