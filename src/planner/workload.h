// What is to be planned: attention of every layer, and the model around it where it is asked for.
#pragma once

#include <cstdint>
#include <optional>

#include "kvring/layout.h"
#include "kvring/problem.h"

namespace kvring {

// Degrees of parallelism besides the ring. A replica of the model takes tensor * pipeline * ring ranks.
struct Mesh {
  std::int64_t tensor = 1;    // heads are cut
  std::int64_t pipeline = 1;  // layers are cut
  std::int64_t data = 1;      // the batch is cut
};

struct Model {
  std::int64_t hidden = 0;
  std::int64_t ffn = 0;  // inner width of a gated feed-forward block: three matrices of hidden x ffn
  std::int64_t vocab = 0;
  std::int64_t params = 0;  // 0: from the shapes
  bool training = false;
  int zero =
      0;  // stage of ZeRO (arXiv 1910.02054): 1 shards optimizer states, 2 gradients too, 3 weights too
};

struct Workload {
  Problem problem;  // of one layer: all heads, the whole batch
  LayoutSpec layout;
  std::int64_t layers = 1;
  std::optional<Model> model;
};

}  // namespace kvring
