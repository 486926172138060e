#include "schedule/relay.h"

#include <algorithm>
#include <numeric>

namespace kvring {

Relay::Relay(const std::vector<Step>& steps, int rank, int ranks)
    : finishes_(static_cast<std::size_t>(ranks)),
      meets_(static_cast<std::size_t>(ranks)),
      arriving_(std::size(kCargos)),
      sends_own_(std::size(kCargos)) {
  meets_[static_cast<std::size_t>(rank)] = 1;
  for (const Step& step : steps) {
    for (const std::int32_t owner : step.finishes)
      finishes_[static_cast<std::size_t>(owner)] = meets_[static_cast<std::size_t>(owner)] = 1;
    for (const Transfer& receive : step.receives) {
      ++arriving_[static_cast<std::size_t>(receive.parcel.cargo)];
      if (receive.parcel.cargo == Cargo::kQueries) meets_[static_cast<std::size_t>(receive.parcel.owner)] = 1;
      if (receive.parcel.share != kWholeLap) share_ = rank;
    }
    for (const Transfer& send : step.sends) {
      if (send.parcel.owner == rank) sends_own_[static_cast<std::size_t>(send.parcel.cargo)] = 1;
      if (send.parcel.share != kWholeLap) share_ = rank;
    }
  }
  find_forwards(steps, ranks);
  find_last_uses(steps, rank, ranks);
}

void Relay::find_forwards(const std::vector<Step>& steps, int ranks) {
  const auto index = [&](const Parcel& parcel) {
    return static_cast<std::size_t>(parcel.cargo) * static_cast<std::size_t>(ranks) +
           static_cast<std::size_t>(parcel.owner);
  };
  std::vector<int> sends_of(std::size(kCargos) * static_cast<std::size_t>(ranks));
  std::size_t receives = 0, all_sends = 0;
  for (const Step& step : steps) {
    first_receive_.push_back(receives);
    first_send_.push_back(all_sends);
    receives += step.receives.size();
    all_sends += step.sends.size();
    for (const Transfer& send : step.sends) ++sends_of[index(send.parcel)];
  }
  forward_to_.assign(receives, -1);
  forwarded_.assign(all_sends, 0);
  for (std::size_t t = 0; t + 1 < steps.size(); ++t) {
    for (std::size_t i = 0; i < steps[t].receives.size(); ++i) {
      const Parcel& parcel = steps[t].receives[i].parcel;
      if (parcel.cargo == Cargo::kPartials) continue;  // what is sent of it is more than what came
      if (sends_of[index(parcel)] != 1) continue;
      const auto& sends = steps[t + 1].sends;
      const auto send =
          std::find_if(sends.begin(), sends.end(), [&](const Transfer& s) { return s.parcel == parcel; });
      if (send == sends.end()) continue;
      // It is posted before all others of that step, so it must be the first on its link.
      if (std::any_of(sends.begin(), send, [&](const Transfer& s) { return s.peer == send->peer; })) continue;
      forward_to_[first_receive_[t] + i] = send->peer;
      forwarded_[first_send_[t + 1] + static_cast<std::size_t>(send - sends.begin())] = 1;
    }
  }
}

void Relay::find_last_uses(const std::vector<Step>& steps, int rank, int ranks) {
  std::vector<int> last(std::size(kCargos) * static_cast<std::size_t>(ranks), -1);
  const auto use = [&](Cargo cargo, std::int32_t owner, int step) {
    last[static_cast<std::size_t>(cargo) * static_cast<std::size_t>(ranks) +
         static_cast<std::size_t>(owner)] = step;
  };
  // What this rank owns may be of no use to anybody.
  use(Cargo::kBlock, rank, 0);
  use(Cargo::kQueries, rank, 0);
  for (const Step& step : steps) {
    for (const Transfer& send : step.sends) use(send.parcel.cargo, send.parcel.owner, step.step);
    for (const Attend& attend : step.attends) {
      use(Cargo::kQueries, attend.queries, step.step);
      use(Cargo::kBlock, attend.block, step.step);
    }
    for (const Transfer& receive : step.receives) {  // and never used
      if (receive.parcel.cargo == Cargo::kBlock || receive.parcel.cargo == Cargo::kQueries)
        use(receive.parcel.cargo, receive.parcel.owner, step.step + 1);
    }
  }
  first_use_.assign(steps.size() + 1, 0);
  for (const int step : last) {
    if (step >= 0) ++first_use_[static_cast<std::size_t>(step) + 1];
  }
  std::partial_sum(first_use_.begin(), first_use_.end(), first_use_.begin());
  last_uses_.resize(first_use_.back());
  std::vector<std::size_t> next = first_use_;
  for (std::size_t i = 0; i < last.size(); ++i) {
    if (last[i] < 0) continue;
    last_uses_[next[static_cast<std::size_t>(last[i])]++] = {
        static_cast<Cargo>(i / static_cast<std::size_t>(ranks)),
        static_cast<std::int32_t>(i % static_cast<std::size_t>(ranks))};
  }
}

}  // namespace kvring
