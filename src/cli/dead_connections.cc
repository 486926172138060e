// A connection whose other end has died stays quiet instead of failing, for the Open MPI in this process.
//
// Open MPI 4 does not survive an error of a connection between ranks, and takes a living rank along with the
// dead one. btl_tcp meets the error of writev() with the lock of the connection taken, closes it, and in
// there has ob1 send a last note about each fragment on the same connection, which takes that lock again: the
// call of MPI never returns, and a rank that was just sending to the dead one could not say any more who is
// gone. (Without that lock, a heartbeat that waits behind a block is reported to ob1 as failed, which then
// aborts the process.) So btl_tcp does not get to see such errors: the rank that died is silent like one that
// is stopped or cut off, which Open MPI leaves alone, and kvring finds it by its silence.
//
// In a program, these two take the place of the C library's functions of the same name, for all libraries
// that are loaded. Of those, only btl_tcp reads from sockets with readv().
#include <mpi.h>

#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION == 4
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace {

msghdr message_of(const iovec* parts, int count) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = static_cast<std::size_t>(count);
  return message;
}

bool died(int error) { return error == ECONNRESET || error == EPIPE || error == ETIMEDOUT; }

ssize_t try_again_later() {
  errno = EAGAIN;
  return -1;
}

// From here on nothing arrives there. A dead socket would be ready all the time, and Open MPI handles events
// for as long as there are any. Its place is taken by one whose other end stays open until the program ends.
bool silence(int socket) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) return false;
  const bool replaced = ::dup2(ends[0], socket) == socket;
  ::close(ends[0]);
  return replaced;
}

}  // namespace

// Leaves it to readv() to silence the connection: both are due when the other end has died.
extern "C" ssize_t writev(int file, const iovec* parts, int count) {
  const msghdr message = message_of(parts, count);
  // The signal would end this rank: once the error was seen, the next write brings SIGPIPE.
  const ssize_t done = ::sendmsg(file, &message, MSG_NOSIGNAL);
  if (done >= 0) return done;
  if (errno == ENOTSOCK) return ::syscall(SYS_writev, file, parts, count);
  return died(errno) ? try_again_later() : done;
}

extern "C" ssize_t readv(int file, const iovec* parts, int count) {
  msghdr message = message_of(parts, count);
  const ssize_t done = ::recvmsg(file, &message, 0);
  if (done > 0) return done;
  if (done < 0 && errno == ENOTSOCK) return ::syscall(SYS_readv, file, parts, count);
  const bool dead = done == 0 || died(errno);
  return dead && silence(file) ? try_again_later() : done;
}

#endif
