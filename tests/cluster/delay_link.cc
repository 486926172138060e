// A switch with a rate and a delay on every cable, for kernels without netem.
//
//   delay_link RATE_MBIT DELAY_MS DEVICE NAMESPACE:ADDRESS...
//
// Takes over the TUN device DEVICE of each network namespace, which is there already with its address. A
// packet leaves its host at RATE_MBIT (0: at once), reaches the owner of its destination address DELAY_MS
// later, and is dropped where more than kLongestQueue waits before it. Prints "ready"; runs until a signal.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// As the token bucket of the other links has it: a few TCP windows of a local network.
constexpr Seconds kLongestQueue{0.05};
// Packets taken from one host before the others get their turn.
constexpr int kBatch = 64;

struct Cable {
  double bytes_per_s;  // 0: no limit
  Seconds delay;
};

struct Packet {
  Clock::time_point due;
  std::size_t to;  // index of the port
  std::vector<char> bytes;
};

struct Port {
  int device;
  in_addr_t address;
  Clock::time_point free_at;    // when the packets taken so far have left the host
  std::deque<Packet> on_cable;  // all with one delay: in the order of `due`
};

void fail_unless(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what + ": " + std::strerror(errno));
}

int open_device(const std::string& name, const std::string& network_namespace) {
  const int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  const int there = open(("/run/netns/" + network_namespace).c_str(), O_RDONLY | O_CLOEXEC);
  fail_unless(home >= 0 && there >= 0 && setns(there, CLONE_NEWNET) == 0, network_namespace);
  const int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  fail_unless(device >= 0 && ioctl(device, TUNSETIFF, &request) == 0, "the device " + name);
  fail_unless(setns(home, CLONE_NEWNET) == 0, "the way back");
  close(there);
  close(home);
  return device;
}

Port open_port(const std::string& device, const std::string& end) {
  const std::size_t colon = end.find(':');
  in_addr address{};
  if (colon == std::string::npos || inet_aton(end.c_str() + colon + 1, &address) == 0)
    throw std::runtime_error("'" + end + "' is not NAMESPACE:ADDRESS");
  return {open_device(device, end.substr(0, colon)), address.s_addr, Clock::now(), {}};
}

Clock::duration ticks(Seconds s) { return std::chrono::duration_cast<Clock::duration>(s); }

// Takes what the host of `port` sends. Packets to nobody here, such as IPv6 router solicitations, vanish.
void take(Port& port, const std::vector<Port>& ports, const Cable& cable) {
  std::array<char, 65536> buffer;
  for (int i = 0; i < kBatch; ++i) {
    const ssize_t size = read(port.device, buffer.data(), buffer.size());
    if (size <= 0) return;
    iphdr header{};
    if (static_cast<std::size_t>(size) < sizeof header) continue;
    std::memcpy(&header, buffer.data(), sizeof header);
    const auto to =
        std::ranges::find_if(ports, [&](const Port& other) { return other.address == header.daddr; });
    if (header.version != 4 || to == ports.end()) continue;
    const Clock::time_point leaves = std::max(Clock::now(), port.free_at);
    if (leaves - Clock::now() > kLongestQueue) continue;
    const double on_wire_s = cable.bytes_per_s > 0 ? static_cast<double>(size) / cable.bytes_per_s : 0;
    port.free_at = leaves + ticks(Seconds(on_wire_s));
    port.on_cable.push_back({port.free_at + ticks(cable.delay),
                             static_cast<std::size_t>(to - ports.begin()),
                             {buffer.data(), buffer.data() + size}});
  }
}

void deliver_due(Port& from, const std::vector<Port>& ports) {
  for (; !from.on_cable.empty() && from.on_cable.front().due <= Clock::now(); from.on_cable.pop_front()) {
    const Packet& packet = from.on_cable.front();
    // A host that takes nothing any more loses it, as on a real cable.
    [[maybe_unused]] const ssize_t written =
        write(ports[packet.to].device, packet.bytes.data(), packet.bytes.size());
  }
}

timespec time_until_next(const std::vector<Port>& ports) {
  Clock::time_point next = Clock::now() + std::chrono::seconds(1);
  for (const Port& port : ports)
    if (!port.on_cable.empty()) next = std::min(next, port.on_cable.front().due);
  const auto left = std::max<std::chrono::nanoseconds>(next - Clock::now(), std::chrono::nanoseconds(0));
  return {left.count() / 1'000'000'000, left.count() % 1'000'000'000};
}

[[noreturn]] void run(std::vector<Port> ports, const Cable& cable) {
  std::vector<pollfd> waits;
  for (const Port& port : ports) waits.push_back({port.device, POLLIN, 0});
  for (;;) {
    const timespec time = time_until_next(ports);
    ppoll(waits.data(), waits.size(), &time, nullptr);
    for (Port& port : ports) take(port, ports, cable);
    for (Port& port : ports) deliver_due(port, ports);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 6)
    throw std::runtime_error("usage: delay_link RATE_MBIT DELAY_MS DEVICE NAMESPACE:ADDRESS NAMESPACE:...");
  const Cable cable{std::atof(argv[1]) * 1e6 / 8, Seconds(std::atof(argv[2]) / 1e3)};
  std::vector<Port> ports;
  for (int i = 4; i < argc; ++i) ports.push_back(open_port(argv[3], argv[i]));
  std::puts("ready");
  std::fflush(stdout);
  run(std::move(ports), cable);
} catch (const std::exception& error) {
  std::fprintf(stderr, "delay_link: %s\n", error.what());
  return 1;
}
