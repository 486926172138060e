#include <algorithm>
#include <system_error>
#include <thread>

#include "cli/cores.h"
#include "cli/message.h"
#include "cli/signals.h"
#include "cli/team.h"

namespace kvring::cli {
namespace {

class InprocTeam final : public Team {
 public:
  InprocTeam(int ranks, double timeout_s) : ends_(make_inproc_transports(ranks, timeout_s)) {}

  int ranks() const noexcept override { return static_cast<int>(ends_.size()); }
  const char* transport() const noexcept override { return "inproc"; }
  bool has_rank_0() const noexcept override { return true; }
  int cores_per_rank() const noexcept override {
    const cpu_set_t cores = allowed_cores();
    return std::max(1, CPU_COUNT(&cores) / ranks());
  }

  void run(const TeamWork& work) override {
    work.prepare();
    std::vector<Outcome> outcomes(ends_.size());
    const Interrupts interrupts([&](int signal) { ends_[0]->fail("ended by " + signal_text(signal)); });
    const auto run_rank = [&](std::size_t r) {
      Transport& end = *ends_[r];
      try {
        outcomes[r] = run_guarded(end, work);
      } catch (const std::bad_alloc&) {  // no memory even for the words of the error
        outcomes[r].failed = true;
        outcomes[r].code = ErrorCode::kOutOfBudget;
        end.fail({});
      }
      work.release(end);
    };
    {
      std::vector<std::jthread> threads;
      try {
        for (std::size_t r = 1; r < ends_.size(); ++r) threads.emplace_back(run_rank, r);
      } catch (const std::exception& error) {  // of the system, or no memory for one more
        // The ranks that did start must not wait for those that never will.
        const std::size_t r = threads.size() + 1;
        outcomes[r] = {true, ErrorCode::kOutOfBudget,
                       std::string("cannot start its thread: ") + error.what() + "; use fewer ranks"};
        ends_[r]->fail(outcomes[r].message);
      }
      run_rank(0);
    }
    if (interrupts.signal() != 0) {
      message("kvring: ended by {}\n", signal_text(interrupts.signal()));
      end_by(interrupts.signal());
    }
    throw_root_cause(outcomes);
  }

 private:
  std::vector<std::unique_ptr<Transport>> ends_;
};

}  // namespace

std::unique_ptr<Team> make_inproc_team(int ranks, double timeout_s) {
  return std::make_unique<InprocTeam>(ranks, timeout_s);
}

}  // namespace kvring::cli
