// What every transport must do, as functions that each rank of a ring runs on its own end (tests only).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kvring/transport.h"

namespace kvring::conformance {

inline std::byte pattern(int owner, std::uint32_t lap, std::size_t i) {
  return static_cast<std::byte>((i * 2654435761u + static_cast<std::size_t>(owner) * 97 + lap * 31) >> 7);
}

inline std::vector<std::byte> block_of(int owner, std::uint32_t lap, std::size_t bytes) {
  std::vector<std::byte> block(bytes);
  for (std::size_t i = 0; i < bytes; ++i) block[i] = pattern(owner, lap, i);
  return block;
}

inline bool holds(std::span<const std::byte> payload, int owner, std::uint32_t lap, std::size_t bytes) {
  if (payload.size() != bytes) return false;
  for (std::size_t i = 0; i < bytes; ++i)
    if (payload[i] != pattern(owner, lap, i)) return false;
  return true;
}

// Blocks have lengths of their own: uneven shards are normal, and a rank may own nothing.
inline std::size_t length_of(int owner, std::size_t longest) {
  return owner % 3 == 1 ? 0 : longest - static_cast<std::size_t>(owner) % (longest + 1);
}

// One lap: every block visits every rank, passed on from rank to rank, and is let go where it has been read.
inline void rotate(Transport& end, std::uint32_t lap, std::size_t longest) {
  const int ranks = end.size();
  const int next = (end.rank() + 1) % ranks;
  const int previous = (end.rank() + ranks - 1) % ranks;
  const std::vector<std::byte> own = block_of(end.rank(), lap, length_of(end.rank(), longest));
  std::vector<std::byte> buffers[2];
  std::vector<Transport::Request> sends;
  std::span<const std::byte> held = own;
  Transport::Request held_receive = 0;
  for (int step = 0; step < ranks; ++step) {
    const int owner = (end.rank() - step + ranks) % ranks;
    Transport::Request receive = 0;
    Transport::Request send = 0;
    const bool last = step + 1 == ranks;
    if (!last) {
      std::vector<std::byte>& buffer = buffers[step % 2];
      if (!end.passes_pointers()) buffer.assign(longest, std::byte{0xee});
      receive = end.post_receive(previous, buffer);
      const MessageHeader header{.problem_digest = 7,
                                 .call = 1,
                                 .lap = lap,
                                 .step = static_cast<std::uint32_t>(step + 1),
                                 .owner = owner};
      send = end.post_send(next, header, held);
    }
    EXPECT_TRUE(holds(held, owner, lap, length_of(owner, longest)))
        << "rank " << end.rank() << " step " << step;
    end.progress();
    if (last) break;
    const Transport::Received received = end.wait_receive(receive, "the next block");
    EXPECT_EQ(received.header.step, static_cast<std::uint32_t>(step + 1));
    EXPECT_EQ(received.header.lap, lap);
    EXPECT_EQ(received.header.problem_digest, 7u);
    EXPECT_EQ(received.header.bytes, received.payload.size());
    if (end.passes_pointers())
      sends.push_back(send);
    else
      end.wait_send(send, "the block passed on");
    if (step > 0) end.release(held_receive);
    held = received.payload;
    held_receive = receive;
  }
  if (ranks > 1) end.release(held_receive);
  for (const Transport::Request send : sends) end.wait_send(send, "the block passed on");
}

// The same lap, but every rank asks beforehand that what it receives goes on, and a rank may be late to look.
inline void rotate_ahead(Transport& end, std::uint32_t lap, std::size_t longest) {
  const int ranks = end.size();
  if (ranks == 1) return;
  const int next = (end.rank() + 1) % ranks;
  const int previous = (end.rank() + ranks - 1) % ranks;
  const std::vector<std::byte> own = block_of(end.rank(), lap, length_of(end.rank(), longest));
  std::vector<std::vector<std::byte>> buffers(static_cast<std::size_t>(ranks));
  std::vector<Transport::Request> sends, receives;
  sends.push_back(end.post_send(next, {.lap = lap, .step = 1, .owner = end.rank()}, own));
  for (int step = 1; step < ranks; ++step) {
    std::vector<std::byte>& buffer = buffers[static_cast<std::size_t>(step)];
    if (!end.passes_pointers()) buffer.assign(longest, std::byte{0xee});
    receives.push_back(end.post_receive(previous, buffer));
    if (step + 1 < ranks) sends.push_back(end.post_forward(receives.back(), next));
  }
  for (int step = 1; step < ranks; ++step) {
    const int owner = (end.rank() - step + ranks) % ranks;
    const Transport::Request receive = receives[static_cast<std::size_t>(step - 1)];
    const Transport::Received received = end.wait_receive(receive, "the next block");
    EXPECT_EQ(received.header.step, static_cast<std::uint32_t>(step));
    EXPECT_EQ(received.header.owner, owner);
    EXPECT_LE(received.began, received.arrived);
    EXPECT_TRUE(holds(received.payload, owner, lap, length_of(owner, longest)))
        << "rank " << end.rank() << " step " << step;
  }
  if (!end.passes_pointers())
    for (const Transport::Request send : sends) end.wait_send(send, "the block passed on");
  for (const Transport::Request receive : receives) end.release(receive);
  if (end.passes_pointers())
    for (const Transport::Request send : sends) end.wait_send(send, "the block passed on");
}

// Asks that a block goes on when it has long arrived, and lets it go at once.
inline void forward_late(Transport& end) {
  const int ranks = end.size();
  if (ranks < 3) return;
  const std::vector<std::byte> own = block_of(0, 0, 1000);
  std::vector<std::byte> buffer(end.passes_pointers() ? 0 : 1000);
  if (end.rank() == 0) {
    end.wait_send(end.post_send(1, {}, own), "a block");
  } else if (end.rank() <= 2) {
    const Transport::Request receive = end.post_receive(end.rank() - 1, buffer);
    EXPECT_TRUE(holds(end.wait_receive(receive, "a block").payload, 0, 0, 1000));
    std::optional<Transport::Request> forward;
    if (end.rank() == 1) forward = end.post_forward(receive, 2);
    end.release(receive);
    if (forward) end.wait_send(*forward, "the block passed on");
  }
  end.barrier("the end");
}

// Everybody sends before anybody receives: a transport that needs the receive to be posted first, with all
// its sends rendezvous, must still complete.
inline void send_then_receive(Transport& end, std::size_t bytes) {
  const int ranks = end.size();
  if (ranks == 1) return;
  const int previous = (end.rank() + ranks - 1) % ranks;
  const std::vector<std::byte> mine = block_of(end.rank(), 0, bytes);
  std::vector<std::byte> buffer(end.passes_pointers() ? 0 : bytes);
  const Transport::Request send = end.post_send((end.rank() + 1) % ranks, {}, mine);
  const Transport::Request receive = end.post_receive(previous, buffer);
  EXPECT_TRUE(holds(end.wait_receive(receive, "a block").payload, previous, 0, bytes));
  EXPECT_TRUE(end.completed(receive));
  end.release(receive);
  end.wait_send(send, "a block");
}

// Between two ranks the n-th receive gets the n-th send, also when they are waited for in another order.
inline void keeps_order(Transport& end) {
  constexpr int kMessages = 5;
  const int ranks = end.size();
  if (ranks == 1) return;
  const int previous = (end.rank() + ranks - 1) % ranks;
  std::vector<std::vector<std::byte>> sent, buffers;
  std::vector<Transport::Request> sends, receives;
  for (int m = 0; m < kMessages; ++m) {
    const std::size_t bytes = static_cast<std::size_t>(100 * (kMessages - m));
    buffers.emplace_back(end.passes_pointers() ? 0 : bytes);
    sent.push_back(block_of(end.rank(), static_cast<std::uint32_t>(m), bytes));
  }
  for (std::size_t m = 0; m < kMessages; ++m) {
    sends.push_back(end.post_send((end.rank() + 1) % ranks, {.lap = static_cast<std::uint32_t>(m)}, sent[m]));
    receives.push_back(end.post_receive(previous, buffers[m]));
  }
  for (std::size_t m = kMessages; m-- > 0;) {
    const Transport::Received received = end.wait_receive(receives[m], "a block");
    EXPECT_EQ(received.header.lap, m);
    EXPECT_EQ(received.header.sequence, m);
    EXPECT_TRUE(holds(received.payload, previous, static_cast<std::uint32_t>(m), sent[m].size()));
    end.release(receives[m]);
  }
  for (const Transport::Request send : sends) end.wait_send(send, "a block");
}

// Strings of different lengths, empty ones among them, several times in a row.
inline void gathers(Transport& end) {
  for (std::size_t round = 0; round < 3; ++round) {
    const auto part = [round](int rank) {
      return std::string(static_cast<std::size_t>(rank) * 7 * round, static_cast<char>('a' + rank % 26));
    };
    const std::vector<std::string> all = end.allgather(part(end.rank()), "the parts");
    ASSERT_EQ(all.size(), static_cast<std::size_t>(end.size()));
    for (int r = 0; r < end.size(); ++r) EXPECT_EQ(all[static_cast<std::size_t>(r)], part(r));
    end.barrier("the end of a round");
  }
}

}  // namespace kvring::conformance
