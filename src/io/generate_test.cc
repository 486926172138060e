#include "io/generate.h"

#include <xxhash.h>

#include <cmath>
#include <map>

#include "io/input.h"
#include "io/test_support.h"

namespace kvring {
namespace {

GenerateSpec small(DType dtype, GenerateKind kind) {
  return {{2, 37, 4, 16}, {2, 41, 2, 16}, 24, dtype, 7, kind};
}

// The same file on every machine: these digests may change only with a note to users.
TEST(Generate, FilesNeverChange) {
  using enum GenerateKind;
  const std::map<std::pair<DType, GenerateKind>, std::uint64_t> digests = {
      {{DType::kF32, kNormal}, 0x34824e8640e27478},  {{DType::kF32, kAdversarial}, 0x141d7ecce6aabdbb},
      {{DType::kBF16, kNormal}, 0x906530d6af27341f}, {{DType::kBF16, kAdversarial}, 0xa166146d0b316d1c},
      {{DType::kF16, kNormal}, 0x4f27610c986be733},  {{DType::kF16, kAdversarial}, 0xbce957d9fa488900}};
  const TempDir dir;
  for (const auto& [what, digest] : digests) {
    const std::string path = dir.file("g.safetensors");
    generate(small(what.first, what.second), path);
    const std::string bytes = read_bytes(path);
    EXPECT_EQ(XXH3_64bits(bytes.data(), bytes.size()), digest)
        << dtype_name(what.first) << " " << static_cast<int>(what.second) << std::hex << " 0x"
        << XXH3_64bits(bytes.data(), bytes.size());
  }
}

TEST(Generate, WritesThePureFunctionOfTheElement) {
  const TempDir dir;
  const GenerateSpec spec = small(DType::kF32, GenerateKind::kAdversarial);
  double last = 0;
  generate(spec, dir.file("g.safetensors"), [&](double done) {
    EXPECT_GT(done, last);
    last = done;
  });
  EXPECT_EQ(last, 1.0);
  const TensorFile file(dir.file("g.safetensors"));
  const auto expect = [&](const char* name, int tensor, const std::vector<std::int64_t>& shape) {
    const std::vector<float> values = file.read_f32(name, shape);
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i], generated_value(spec, tensor, static_cast<std::int64_t>(i))) << name << i;
  };
  expect("q", 0, {2, 37, 4, 16});
  expect("k", 1, {2, 41, 2, 16});
  expect("v", 2, {2, 41, 2, 24});
}

TEST(Generate, SeedsAndTensorsDiffer) {
  GenerateSpec spec = small(DType::kF32, GenerateKind::kNormal);
  GenerateSpec other = spec;
  other.seed = 8;
  int equal = 0;
  for (std::int64_t i = 0; i < 1000; ++i) {
    equal += generated_value(spec, 0, i) == generated_value(other, 0, i);
    equal += generated_value(spec, 0, i) == generated_value(spec, 1, i);
    equal += generated_value(spec, 1, i) == generated_value(spec, 2, i);
    equal += generated_value(spec, 0, i) == generated_value(spec, 0, i + 1);
  }
  EXPECT_EQ(equal, 0);
}

// Moments of n draws against those of the distribution, within five standard deviations; neighbours
// uncorrelated.
TEST(Generate, NormalHasNormalMoments) {
  const GenerateSpec spec = small(DType::kF32, GenerateKind::kNormal);
  constexpr int kDraws = 200'000;
  double sum = 0, squares = 0, fourth = 0, neighbours = 0, largest = 0, previous = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = static_cast<double>(generated_value(spec, 0, i));
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
    neighbours += x * previous;
    largest = std::max(largest, std::fabs(x));
    previous = x;
  }
  const double sigma = 5 / std::sqrt(kDraws);
  EXPECT_NEAR(sum / kDraws, 0, sigma);
  EXPECT_NEAR(neighbours / kDraws, 0, sigma);
  EXPECT_NEAR(squares / kDraws, 1, std::sqrt(2.0) * sigma);
  EXPECT_NEAR(fourth / kDraws, 2.97, std::sqrt(96.0) * sigma);
  EXPECT_GT(largest, 4);
  EXPECT_LT(largest, 8.25);
}

// Everything that the kind promises is there, and nothing is NaN or infinite once stored.
TEST(Generate, AdversarialHoldsEveryTrap) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    SCOPED_TRACE(dtype_name(dtype));
    GenerateSpec spec = small(dtype, GenerateKind::kAdversarial);
    spec.q_shape[1] = spec.kv_shape[1] = 400;
    const double least_normal = dtype == DType::kF16 ? 0x1p-14 : 0x1p-126;
    int zeros[2] = {}, subnormals = 0, large = 0, constant_rows = 0;
    for (int tensor = 0; tensor < 3; ++tensor) {
      const std::int64_t dim = tensor == 2 ? 24 : 16, rows = 2 * 400 * (tensor == 0 ? 4 : 2);
      for (std::int64_t row = 0; row < rows; ++row) {
        int same = 0;
        for (std::int64_t d = 0; d < dim; ++d) {
          const float raw = generated_value(spec, tensor, row * dim + d);
          std::uint32_t stored = 0;
          store_element(&stored, dtype, 0, static_cast<double>(raw));
          const float x = load_element(&stored, dtype, 0);
          ASSERT_TRUE(std::isfinite(x));
          if (x == 0) ++zeros[std::signbit(x)];
          subnormals += x != 0 && std::fabs(x) < least_normal;
          large += std::fabs(x) > 4096;
          same += d > 0 && x != 0 && raw == generated_value(spec, tensor, row * dim);
        }
        constant_rows += same == dim - 1;
      }
    }
    EXPECT_GT(zeros[0], 100);
    EXPECT_GT(zeros[1], 100);
    EXPECT_GT(subnormals, 100);
    EXPECT_GT(large, 100);
    EXPECT_GT(constant_rows, 100);
  }
}

// A logit of some 1e7 needs outliers of q and k in the same dim.
TEST(Generate, AdversarialOutliersMeet) {
  GenerateSpec spec = small(DType::kF32, GenerateKind::kAdversarial);
  spec.q_shape = spec.kv_shape = {1, 400, 1, 16};
  double largest = 0;
  for (std::int64_t d = 0; d < 16; ++d) {
    double q = 0, k = 0;
    for (std::int64_t row = 0; row < 400; ++row) {
      // Rows scaled as a whole have no outlier: compare with a neighbour.
      const auto outlier = [&](int tensor) {
        const auto x = std::fabs(static_cast<double>(generated_value(spec, tensor, row * 16 + d)));
        const auto y = std::fabs(static_cast<double>(generated_value(spec, tensor, row * 16 + (d + 1) % 16)));
        return y < 8 ? x : 0.0;
      };
      q = std::max(q, outlier(0));
      k = std::max(k, outlier(1));
    }
    largest = std::max(largest, q * k);
  }
  EXPECT_GT(largest, 1e7);
}

TEST(Generate, AdversarialScalesDimsOfV) {
  GenerateSpec spec = small(DType::kF32, GenerateKind::kAdversarial);
  spec.value_dim = 64;
  double least = 1e300, most = 0;
  for (std::int64_t d = 0; d < 64; ++d) {
    std::vector<float> column;
    for (std::int64_t row = 0; row < 101; ++row)
      column.push_back(std::fabs(generated_value(spec, 2, row * 64 + d)));
    std::nth_element(column.begin(), column.begin() + 50, column.end());
    least = std::min(least, static_cast<double>(column[50]));
    most = std::max(most, static_cast<double>(column[50]));
  }
  EXPECT_LT(least, 0x1p-15);
  EXPECT_GT(most, 0x1p15);
}

TEST(Generate, LeavesNoFileBehindAFailure) {
  const TempDir dir;
  EXPECT_THROW(generate(small(DType::kF32, GenerateKind::kNormal), dir.file("g.safetensors"),
                        [](double) { throw std::runtime_error("stop"); }),
               std::runtime_error);
  EXPECT_TRUE(dir.names().empty());
}

TEST(Generate, RefusesNonsense) {
  const TempDir dir;
  const auto bad = [&](const std::vector<std::string>& parts,
                       const std::function<void(GenerateSpec&)>& change, const char* name = "g.safetensors") {
    GenerateSpec spec = small(DType::kF32, GenerateKind::kNormal);
    change(spec);
    expect_error(ErrorCode::kInvalidArgument, parts, [&] { generate(spec, dir.file(name)); });
  };
  bad({"(2, 37, 0, 16)"}, [](GenerateSpec& s) { s.q_shape[2] = 0; });
  bad({"(2, -1, 2, 16)"}, [](GenerateSpec& s) { s.kv_shape[1] = -1; });
  bad({"value dim 0"}, [](GenerateSpec& s) { s.value_dim = 0; });
  bad({"agree in batch and dim"}, [](GenerateSpec& s) { s.kv_shape[3] = 8; });
  bad({"agree in batch and dim"}, [](GenerateSpec& s) { s.kv_shape[0] = 1; });
  bad({"'q'", "2^63"}, [](GenerateSpec& s) { s.q_shape[1] = std::int64_t{1} << 60; });
  bad(
      {".safetensors"}, [](GenerateSpec&) {}, "g.npy");
  EXPECT_TRUE(dir.names().empty());
  GenerateSpec empty = small(DType::kF16, GenerateKind::kAdversarial);
  empty.kv_shape[1] = 0;
  generate(empty, dir.file("g.safetensors"));
  EXPECT_EQ(TensorFile(dir.file("g.safetensors")).tensor("v").shape()[1], 0);
}

}  // namespace
}  // namespace kvring
