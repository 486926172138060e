// Long local work (reading, writing, checking) that the other ranks must not take for death.
#pragma once

#include <chrono>
#include <future>

#include "kvring/transport.h"

namespace kvring::cli {

// Runs `work` on a thread of its own, while this one, to which the transport belongs, tells the other ranks
// that it lives. Returns or throws what `work` does.
template <typename Work>
auto keep_alive(Transport& transport, Work work) {
  constexpr auto kInterval = std::chrono::milliseconds(20);  // far below any deadline that makes sense
  auto result = std::async(std::launch::async, std::move(work));
  while (result.wait_for(kInterval) != std::future_status::ready) transport.progress();
  return result.get();
}

}  // namespace kvring::cli
