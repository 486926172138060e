#include "attend.h"

#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include "kvring/attend.h"
#include "kvring/error.h"
#include "tensor.h"

namespace kvring::python {

namespace nb = nanobind;

namespace {

using Lse = nb::ndarray<float, nb::c_contig, nb::device::cpu>;
using Sinks = std::optional<std::vector<double>>;

// Python runs signal handlers between its own instructions only, so a long call has to ask. The GIL is
// taken for it, hence not at every opportunity.
class SignalCheck {
 public:
  void operator()(double /*share done*/) {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

void check_dims(const Tensor& q, const Tensor& other) {
  if (q.dims() == other.dims()) return;
  throw InvalidArgument(fmt::format(
      "q has {} dimensions and {} has {}; all must have 4, (batch, seqlen, heads, dim), or all 3, "
      "without batch",
      q.dims(), other.name(), other.dims()));
}

std::vector<float> sink_logits(const Sinks& sinks, std::int64_t q_heads) {
  if (!sinks) return {};
  if (std::ssize(*sinks) != q_heads) {
    throw InvalidArgument(fmt::format("sinks has {} values; it must have one for each of the {} query heads",
                                      sinks->size(), q_heads));
  }
  return {sinks->begin(), sinks->end()};
}

void attend_tensors(Problem problem, AttendOptions options, const Tensor& q, const Tensor& k, const Tensor& v,
                    const Tensor& out, const std::optional<Lse>& lse, const Sinks& sinks) {
  for (const Tensor* other : {&k, &v, &out}) check_dims(q, *other);
  for (const Tensor* input : {&q, &k, &v}) check_apart(out, *input);
  const ConstTensorView q_view = as_const(q.view()), k_view = as_const(k.view()), v_view = as_const(v.view());
  const TensorView out_view = out.view();
  problem.batch = q_view.shape[0];
  problem.q_len = q_view.shape[1];
  problem.q_heads = q_view.shape[2];
  problem.head_dim = q_view.shape[3];
  problem.kv_len = k_view.shape[1];
  problem.kv_heads = k_view.shape[2];
  problem.value_dim = v_view.shape[3];
  problem.q_dtype = q_view.dtype;
  problem.kv_dtype = k_view.dtype;
  problem.out_dtype = out_view.dtype;
  problem.has_sinks = sinks.has_value();

  const std::vector<float> logits = sink_logits(sinks, problem.q_heads);
  LseView lse_view;
  if (lse) {
    lse_view = dense_lse_view(lse->data(), {problem.batch, problem.q_heads, problem.q_len});
  }
  options.progress = SignalCheck();
  const nb::gil_scoped_release no_gil;
  attend(problem, options, q_view, k_view, v_view, out_view, lse_view, sinks ? logits.data() : nullptr);
}

}  // namespace

void bind_attend(nb::module_& m) {
  nb::enum_<Accumulation>(m, "Accumulation")
      .value("reproducible", Accumulation::kReproducible)
      .value("online", Accumulation::kOnline);
  nb::enum_<LayoutKind>(m, "Layout")
      .value("contiguous", LayoutKind::kContiguous)
      .value("zigzag", LayoutKind::kZigzag)
      .value("striped", LayoutKind::kStriped);
  nb::enum_<ScheduleKind>(m, "Schedule")
      .value("ring", ScheduleKind::kRing)
      .value("all_gather", ScheduleKind::kAllGather)
      .value("pass_q", ScheduleKind::kPassQ)
      .value("ulysses", ScheduleKind::kUlysses)
      .value("tree", ScheduleKind::kTree);
  nb::class_<Problem>(m, "Problem", "What is asked, but for what the tensors say themselves.")
      .def(nb::init<>())
      .def_rw("softmax_scale", &Problem::softmax_scale, nb::arg().none())
      .def_rw("softcap", &Problem::softcap)
      .def_rw("causal", &Problem::causal)
      .def_rw("window_left", &Problem::window_left)
      .def_rw("window_right", &Problem::window_right)
      .def_rw("cu_seqlens_q", &Problem::cu_seqlens_q)
      .def_rw("cu_seqlens_kv", &Problem::cu_seqlens_kv)
      .def_rw("tile", &Problem::tile)
      .def_rw("accumulation", &Problem::accumulation);
  nb::class_<AttendOptions>(m, "Options", "How it is computed.")
      .def(nb::init<>())
      .def_rw("ranks", &AttendOptions::ranks)
      .def_prop_rw(
          "layout", [](const AttendOptions& o) { return o.layout.kind; },
          [](AttendOptions& o, LayoutKind kind) { o.layout.kind = kind; })
      .def_prop_rw(
          "schedule", [](const AttendOptions& o) { return o.ring.schedule; },
          [](AttendOptions& o, ScheduleKind kind) { o.ring.schedule = kind; })
      .def_prop_rw(
          "threads", [](const AttendOptions& o) { return o.ring.threads; },
          [](AttendOptions& o, int threads) { o.ring.threads = threads; }, "Compute threads per rank.");
  m.def("attend", &attend_tensors, nb::arg("problem"), nb::arg("options"), nb::arg("q"), nb::arg("k"),
        nb::arg("v"), nb::arg("out"), nb::arg("lse").none(), nb::arg("sinks").none(),
        "kvring::attend on whole tensors, without the GIL.");
}

}  // namespace kvring::python
