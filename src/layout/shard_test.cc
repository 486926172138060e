#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "kvring/error.h"
#include "kvring/layout.h"
#include "tests/support/random_problem.h"

namespace kvring {
namespace {

using ::testing::ElementsAre;

TEST(Shard, JoinsNeighboursAndKeepsOrder) {
  const Shard shard({{4, 6}, {6, 7}, {0, 2}});
  EXPECT_THAT(shard.ranges(), ElementsAre(Range{4, 7}, Range{0, 2}));
  EXPECT_THAT(shard.offsets(), ElementsAre(0, 3, 5));
  EXPECT_EQ(shard.tokens(), 5);
  std::vector<std::int64_t> positions;
  for (std::int64_t i = 0; i < shard.tokens(); ++i) positions.push_back(shard.position(i));
  EXPECT_THAT(positions, ElementsAre(4, 5, 6, 0, 1));
  EXPECT_EQ(Shard().tokens(), 0);
  EXPECT_THROW(Shard({{3, 3}}), InvalidArgument);
}

// A view whose strides leave gaps of random width, so that no dimension but the last is dense.
struct Padded {
  std::vector<std::uint16_t> data;
  TensorView view;

  Padded(std::array<std::int64_t, 4> shape, std::array<std::int64_t, 3> gaps) {
    view.dtype = DType::kBF16;
    view.shape = shape;
    view.stride[3] = 1;
    for (int i = 2; i >= 0; --i) {
      const auto d = static_cast<std::size_t>(i);
      view.stride[d] = view.stride[d + 1] * shape[d + 1] + gaps[d];
    }
    data.assign(static_cast<std::size_t>(view.stride[0] * shape[0]), 0xffff);
    view.data = data.data();
  }
  std::uint16_t& at(std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t d) {
    return data.at(static_cast<std::size_t>(view.offset(b, s, h) + d));
  }
};

// shard() puts every element where position() says, for dense and padded views; unshard() undoes it, and
// neither touches anything between the rows.
RC_GTEST_PROP(Shard, CopiesRowsToWherePositionSays, ()) {
  test::Rng rng(*rc::gen::noShrink(rc::gen::arbitrary<std::uint64_t>()));
  const auto gap = [&] { return rng.chance(0.5) ? 0 : rng.between(1, 3); };
  const std::int64_t batch = rng.between(1, 2), heads = rng.between(1, 3), dim = rng.between(1, 4);
  const std::int64_t tokens = test::random_length(rng, 20);
  const Layout layout = make_layout({LayoutKind::kStriped, 1, Cut::kTokens}, tokens, {}, 4,
                                    static_cast<int>(rng.between(1, 4)));
  Padded whole({batch, tokens, heads, dim}, {gap(), gap(), gap()});
  std::uint16_t value = 0;
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t s = 0; s < tokens; ++s)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t d = 0; d < dim; ++d) whole.at(b, s, h, d) = value++;
  Padded back(whole);
  back.view.data = back.data.data();
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t s = 0; s < tokens; ++s)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t d = 0; d < dim; ++d) back.at(b, s, h, d) = 0xffff;
  for (const Shard& part : layout.shards) {
    Padded local({batch, part.tokens(), heads, dim}, {gap(), gap(), gap()});
    shard(as_const(whole.view), part, local.view);
    std::size_t written = 0;
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t i = 0; i < part.tokens(); ++i)
        for (std::int64_t h = 0; h < heads; ++h)
          for (std::int64_t d = 0; d < dim; ++d, ++written)
            RC_ASSERT(local.at(b, i, h, d) == whole.at(b, part.position(i), h, d));
    const auto untouched = std::count(local.data.begin(), local.data.end(), std::uint16_t{0xffff});
    RC_ASSERT(written + static_cast<std::size_t>(untouched) == local.data.size());
    unshard(as_const(local.view), part, back.view);
  }
  RC_ASSERT(back.data == whole.data);
}

TEST(Shard, TensorsWithoutElementsMayBeNull) {
  const TensorView whole = dense_view<void>(nullptr, DType::kF32, {1, 4, 0, 3});
  const TensorView local = dense_view<void>(nullptr, DType::kF32, {1, 2, 0, 3});
  EXPECT_NO_THROW(shard(as_const(whole), Shard({{1, 3}}), local));
  EXPECT_NO_THROW(unshard(as_const(local), Shard({{1, 3}}), whole));
}

TEST(Shard, RefusesShapesThatDoNotFit) {
  const Shard part({{1, 3}});
  test::OwnedTensor whole(DType::kF32, {1, 4, 2, 3});
  const auto refuses = [&](DType dtype, std::array<std::int64_t, 4> shape) {
    test::OwnedTensor local(dtype, shape);
    EXPECT_THROW(shard(as_const(whole.view()), part, local.view()), InvalidArgument);
    EXPECT_THROW(unshard(as_const(local.view()), part, whole.view()), InvalidArgument);
  };
  refuses(DType::kBF16, {1, 2, 2, 3});
  refuses(DType::kF32, {2, 2, 2, 3});
  refuses(DType::kF32, {1, 3, 2, 3});
  refuses(DType::kF32, {1, 2, 1, 3});
  refuses(DType::kF32, {1, 2, 2, 4});
  test::OwnedTensor local(DType::kF32, {1, 2, 2, 3});
  EXPECT_NO_THROW(shard(as_const(whole.view()), part, local.view()));
  EXPECT_THROW(shard(as_const(whole.view()), Shard({{3, 5}}), local.view()), InvalidArgument);
}

}  // namespace
}  // namespace kvring
