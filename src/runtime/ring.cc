#include "kvring/ring.h"

#include <utility>

#include "runtime/member.h"

namespace kvring {

struct Ring::Impl {
  RingMember member;
};

Ring::Ring(const Problem& problem, const Layouts& layouts, const RingOptions& options, Transport& transport)
    : impl_(new Impl{{problem, layouts, options, transport}}) {}
Ring::~Ring() = default;

void Ring::attend(const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
                  const TensorView& out, const LseView& lse, const float* sinks) {
  impl_->member.attend({q, k, v, out, lse, sinks});
}

void Ring::set_progress(std::function<void(double)> progress) {
  impl_->member.set_progress(std::move(progress));
}
const RankReport& Ring::report() const { return impl_->member.report(); }

void Ring::keep_all_operations() { impl_->member.recorder().keep_all(); }
std::vector<Operation> Ring::operations() const { return impl_->member.recorder().operations(); }
std::string Ring::record(const std::string& reason) const { return impl_->member.record(reason); }
bool Ring::bits_invariant() const { return impl_->member.bits_invariant(); }

}  // namespace kvring
