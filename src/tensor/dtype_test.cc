#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "kvring/error.h"
#include "kvring/tensor.h"

namespace kvring {
namespace {

TEST(DType, NamesRoundTrip) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
  EXPECT_THROW(parse_dtype("fp8"), InvalidArgument);
}

// Every 16-bit pattern widens and narrows back to itself (NaN to some NaN).
TEST(DType, SixteenBitFormatsRoundTripExhaustively) {
  for (std::uint32_t i = 0; i <= 0xffff; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float b = bf16_to_float(bits);
    if (std::isnan(b)) {
      EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(b))));
    } else {
      EXPECT_EQ(float_to_bf16(b), bits);
    }
    const float h = f16_to_float(bits);
    if (std::isnan(h)) {
      EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(h))));
    } else {
      ASSERT_EQ(float_to_f16(h), bits) << h;
    }
  }
}

// Between two neighbours: below the middle rounds down, above up, the middle to the even one.
TEST(DType, RoundsToNearestEven) {
  for (std::uint32_t i = 0; i < 0x7bff; i += 7) {
    const double low = f16_to_float(static_cast<std::uint16_t>(i));
    const double high = f16_to_float(static_cast<std::uint16_t>(i + 1));
    const double middle = (low + high) / 2;
    const std::uint16_t even = static_cast<std::uint16_t>(i & 1 ? i + 1 : i);
    std::uint16_t out = 0;
    store_element(&out, DType::kF16, 0, middle);
    EXPECT_EQ(out, even);
    // A double that a float would round onto the tie must not be rounded twice.
    store_element(&out, DType::kF16, 0, std::nextafter(middle, 1e9));
    EXPECT_EQ(out, i + 1);
    store_element(&out, DType::kF16, 0, std::nextafter(middle, -1e9));
    EXPECT_EQ(out, i);
  }
  for (std::uint32_t i = 0; i < 0x7f7f; i += 13) {
    const double low = bf16_to_float(static_cast<std::uint16_t>(i));
    const double high = bf16_to_float(static_cast<std::uint16_t>(i + 1));
    const double middle = low + (high - low) / 2;
    std::uint16_t out = 0;
    store_element(&out, DType::kBF16, 0, middle);
    EXPECT_EQ(out, i & 1 ? i + 1 : i);
    store_element(&out, DType::kBF16, 0, std::nextafter(middle, 1e300));
    EXPECT_EQ(out, i + 1);
  }
}

TEST(DType, OverflowGoesToInfinity) {
  std::uint16_t out = 0;
  store_element(&out, DType::kF16, 0, 65520.0);
  EXPECT_EQ(out, 0x7c00);
  store_element(&out, DType::kF16, 0, 65519.0);
  EXPECT_EQ(out, 0x7bff);
  store_element(&out, DType::kBF16, 0, -3.4e38);
  EXPECT_EQ(out, 0xff80);
  store_element(&out, DType::kBF16, 0, std::numeric_limits<double>::infinity());
  EXPECT_EQ(out, 0x7f80);
}

}  // namespace
}  // namespace kvring
