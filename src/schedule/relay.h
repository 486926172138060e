// What the steps of a rank say between the lines: what is passed on as it arrives, and when a parcel has been
// used for the last time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedule/step.h"

namespace kvring {

class Relay {
 public:
  Relay(const std::vector<Step>& steps, int rank, int ranks);

  // The rank to which receive i of the step is to be passed on as it arrives, which is what the next step
  // says and the only thing that is ever sent of it; -1: it is not.
  int forward_to(int step, std::size_t receive) const noexcept {
    return forward_to_[first_receive_[static_cast<std::size_t>(step)] + receive];
  }
  // Whether send i of the step has been posted that way.
  bool forwarded(int step, std::size_t send) const noexcept {
    return forwarded_[first_send_[static_cast<std::size_t>(step)] + send] != 0;
  }
  // What is used in this step for the last time: {cargo, owner}.
  struct Use {
    Cargo cargo;
    std::int32_t owner;
  };
  std::span<const Use> last_uses(int step) const noexcept {
    const auto s = static_cast<std::size_t>(step);
    return std::span(last_uses_).subspan(first_use_[s], first_use_[s + 1] - first_use_[s]);
  }

  // This rank sends its own queries, or block, which must then lie as parcels do.
  bool sends_own(Cargo cargo) const noexcept { return sends_own_[static_cast<std::size_t>(cargo)] != 0; }
  // The rows of that rank's queries are finished here.
  bool finishes(int owner) const noexcept { return finishes_[static_cast<std::size_t>(owner)] != 0; }
  // That rank's queries come here, or are this rank's own.
  bool meets(int owner) const noexcept { return meets_[static_cast<std::size_t>(owner)] != 0; }
  // The share of the heads that is attended here.
  std::int32_t share() const noexcept { return share_; }
  // Parcels of a kind that arrive in a lap.
  std::int64_t arriving(Cargo cargo) const noexcept { return arriving_[static_cast<std::size_t>(cargo)]; }

 private:
  void find_forwards(const std::vector<Step>& steps, int ranks);
  void find_last_uses(const std::vector<Step>& steps, int rank, int ranks);

  // Of all steps together, and where those of each begin.
  std::vector<std::size_t> first_receive_, first_send_, first_use_;
  std::vector<int> forward_to_;
  std::vector<char> forwarded_;
  std::vector<Use> last_uses_;
  std::vector<char> finishes_, meets_;
  std::vector<std::int64_t> arriving_;
  std::int32_t share_ = kWholeLap;
  std::vector<char> sends_own_;
};

}  // namespace kvring
