// A set of small numbers that is emptied in rising order.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvring {

// A bit per number, and one per word of those: what is in it is found without looking through all of it, and
// without sorting, which for the ports of thousands of ranks that act at once took a tenth of a simulation.
class IndexSet {
 public:
  explicit IndexSet(std::size_t size) : words_(size / 64 + 1), some_(words_.size() / 64 + 1) {}

  void insert(std::size_t index) {
    words_[index / 64] |= std::uint64_t{1} << index % 64;
    some_[index / 64 / 64] |= std::uint64_t{1} << index / 64 % 64;
  }
  // Calls visit(index) for each, which may not insert, and takes it out.
  template <typename Visit>
  void drain(Visit visit) {
    for (std::size_t s = 0; s < some_.size(); ++s) {
      for (; some_[s] != 0; some_[s] &= some_[s] - 1) {
        const std::size_t w = s * 64 + static_cast<std::size_t>(std::countr_zero(some_[s]));
        for (; words_[w] != 0; words_[w] &= words_[w] - 1)
          visit(w * 64 + static_cast<std::size_t>(std::countr_zero(words_[w])));
      }
    }
  }

 private:
  std::vector<std::uint64_t> words_, some_;
};

}  // namespace kvring
