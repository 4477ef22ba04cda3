#include "csrc/distributed/core/links.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>

#include "csrc/base/cgroup.h"
#include "csrc/base/clock.h"
#include "csrc/base/futex.h"
#include "csrc/base/process_id.h"
#include "csrc/stats/shared_file.h"

namespace npu {
namespace {

// How long a wait spins: about as long as it takes to wake a thread. A rank
// that waits longer leaves its core to the ranks that compute.
constexpr uint64_t kSpinNs = 20'000;
// How often a sleeping wait looks whether its peer still lives.
constexpr uint64_t kLookNs = 50'000'000;
// A peer whose call has failed may still say why by another way.
constexpr uint64_t kWithdrawnNs = 2'000'000'000;

uint64_t random_number() {
  std::random_device random;
  return uint64_t(random()) << 32 | random();
}

// What ranks have in common that can be linked: they run on one kernel and see
// the same processes and the same network. Ranks in different network
// namespaces are different hosts, as far as anybody can tell. "": nobody can be
// linked with this process.
std::string host_of_this_process() {
  std::istringstream file(text_of_file("/proc/sys/kernel/random/boot_id"));
  std::string boot;
  file >> boot;
  struct stat network;
  const uint64_t processes = pid_namespace();
  if (boot.empty() || !processes || stat("/proc/self/ns/net", &network))
    return "";
  return boot + "/" + std::to_string(network.st_ino) + "/" +
         std::to_string(processes);
}

// Which processes may read this one's memory, where Yama lets only its
// ancestors (kernel.yama.ptrace_scope=1). PR_SET_PTRACER has room for one
// process, and lets that and its descendants: for several peers it is their
// nearest common ancestor, which is mostly what has started the ranks.
class Readers {
 public:
  void add(pid_t pid) {
    std::lock_guard lock(mutex_);
    pids_.insert(pid);
    widen(pid);
    tell();
  }
  void remove(pid_t pid) {
    std::lock_guard lock(mutex_);
    pids_.erase(pids_.find(pid));
    if (pids_.empty()) allowed_ = 0;
    tell();
  }
  // The leave goes with the process that it names: a shell that has started the
  // ranks may end before they do.
  void renew() {
    std::lock_guard lock(mutex_);
    if (allowed_ <= 0 || !kill(allowed_, 0) || errno != ESRCH) return;
    allowed_ = 0;
    for (const pid_t pid : pids_) widen(pid);
    tell();
  }

 private:
  void widen(pid_t pid) {
    if (!allowed_) allowed_ = pid;
    while (allowed_ > 0 && !descends(pid, allowed_))
      allowed_ = parent_of(allowed_);
    // None is an ancestor of all: any process of the user may read.
    if (!allowed_) allowed_ = -1;
  }
  static bool descends(pid_t pid, pid_t from) {
    while (pid > 0 && pid != from) pid = parent_of(pid);
    return pid == from;
  }
  // Without Yama the call fails, and nothing is to be allowed.
  void tell() const { prctl(PR_SET_PTRACER, long(allowed_), 0, 0, 0); }

  std::mutex mutex_;
  std::multiset<pid_t> pids_;
  pid_t allowed_ = 0;  // 0: none, -1: all
};

Readers& readers() {
  static auto& all = *new Readers;
  return all;
}

constexpr size_t kHead = 4096;  // an office is before its rings

}  // namespace

// What a rank shares with the others: they ring its bell and write into its
// rings, one for each rank, which follow.
struct Links::Office {
  std::atomic<uint32_t> bell{0};
  std::atomic<uint32_t> sleepers{0};
  std::atomic<uint32_t> withdrawn{0}, left{0};
  uint64_t token = random_number();
};

// How another process finds an open file and a word of this one.
struct Links::Address {
  std::string host;  // as host_of_this_process(); "": it cannot be linked
  int pid = 0;
  int file = -1;
  uint64_t token = 0;           // a random number ...
  uint64_t token_location = 0;  // ... and where it is in the process's memory
};

struct Links::Peer {
  explicit Peer(const Address& address)
      : address(address),
        process(int(syscall(SYS_pidfd_open, address.pid, 0))) {}

  struct Waiting {
    uint64_t key;
    std::string body;
  };

  // As long as it lives, its number is no other process's.
  bool lives() const {
    pollfd one{process, POLLIN, 0};
    return poll(&one, 1, 0) == 0;
  }
  int read(uint64_t location, void* to, size_t size) const;
  bool has_token() const;

  const Address address;
  const OpenFile process;
  Office* office = nullptr;                          // null: not linked
  std::map<uint64_t, std::deque<std::string>> came;  // by key
  std::deque<Waiting> leaving;
  uint64_t posted = 0, left = 0;  // notes
  uint64_t withdrawn_since = 0;
};

// Copies from its memory. Returns 0, or an errno: ESRCH where it has ended.
int Links::Peer::read(uint64_t location, void* to, size_t size) const {
  constexpr size_t kMost = size_t(1) << 30;  // the call's own limit is 2 GiB
  for (size_t done = 0; done < size;) {
    const size_t next = std::min(kMost, size - done);
    const iovec here{static_cast<char*>(to) + done, next};
    const iovec there{reinterpret_cast<void*>(location + done), next};
    const ssize_t n = process_vm_readv(address.pid, &here, 1, &there, 1, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return EFAULT;
    done += size_t(n);
  }
  return 0;
}

// Whether the process of that number is the one that is meant, and this one may
// read its memory.
bool Links::Peer::has_token() const {
  uint64_t token = 0;
  return process >= 0 && !read(address.token_location, &token, sizeof token) &&
         token == address.token;
}

Links::Links(int rank, int size)
    : rank_(rank),
      size_(size),
      pid_(getpid()),
      bytes_(kHead + size_t(size) * sizeof(NoteRing)),
      file_(memfd_create("npu_dispatch_links", MFD_CLOEXEC)),
      peers_(size) {
  static_assert(std::atomic<uint32_t>::is_always_lock_free,
                "other processes use it, too");
  static_assert(sizeof(Office) <= kHead);
  // Most rings of a large group stay empty, and their pages take no memory.
  void* const memory = file_ < 0 || ftruncate(file_, off_t(bytes_))
                           ? nullptr
                           : map_pages(file_, 0, bytes_);
  if (!memory) return;
  mine_ = new (memory) Office;
  for (int p = 0; p < size; ++p) new (&ring_of(*mine_, p)) NoteRing;
  host_ = host_of_this_process();
}

Links::~Links() {
  // A forked child has the memory, too, but is not the rank.
  if (mine_ && getpid() == pid_) {
    // Release: who sees it finds all notes that were sent before.
    mine_->left.store(1, std::memory_order_release);
    for (const auto& peer : peers_)
      if (peer && peer->office) ring(*peer->office);
  }
  for (int p = 0; p < size_; ++p) close(p);
  if (mine_) munmap(mine_, bytes_);
}

NoteRing& Links::ring_of(Office& office, int from) const {
  return reinterpret_cast<NoteRing*>(reinterpret_cast<char*>(&office) +
                                     kHead)[from];
}

std::string Links::address() const {
  if (host_.empty()) return "-";
  std::ostringstream out;
  out << host_ << ' ' << pid_ << ' ' << int(file_) << ' ' << mine_->token << ' '
      << reinterpret_cast<uint64_t>(&mine_->token);
  return out.str();
}

bool Links::meet(int peer, const std::string& text) {
  Address a;
  std::istringstream in(text);
  in >> a.host >> a.pid >> a.file >> a.token >> a.token_location;
  if (!in || peer == rank_ || a.host != host_) return false;
  peers_[peer] = std::make_unique<Peer>(a);
  readers().add(a.pid);
  return true;
}

bool Links::open(int peer) {
  if (!peers_[peer]) return false;
  Peer& p = *peers_[peer];
  if (p.has_token()) {
    const OpenFile file(::open(("/proc/" + std::to_string(p.address.pid) +
                                "/fd/" + std::to_string(p.address.file))
                                   .c_str(),
                               O_RDWR | O_CLOEXEC));
    if (file >= 0) p.office = static_cast<Office*>(map_pages(file, 0, bytes_));
  }
  // The number may have become another process's before the file was opened,
  // and the file's may be another one's by now.
  if (p.office && p.office->token == p.address.token && p.lives()) return true;
  close(peer);
  return false;
}

void Links::close(int peer) {
  if (!peers_[peer]) return;
  if (peers_[peer]->office) munmap(peers_[peer]->office, bytes_);
  // A forked child was given no leave to take back.
  if (getpid() == pid_) readers().remove(peers_[peer]->address.pid);
  peers_[peer] = nullptr;
}

bool Links::linked(int peer) const {
  return peer >= 0 && peers_[peer] && peers_[peer]->office;
}

int Links::linked_peers() const {
  int n = 0;
  for (int p = 0; p < size_; ++p) n += linked(p);
  return n;
}

// Sequentially consistent, as in Wait: either the sleeper counted itself before
// `sleepers` is read here, and is woken, or it reads the new number of the
// bell, and sees, by that load, all that was written before the bell rang.
void Links::ring(Office& office) const {
  office.bell.fetch_add(1, std::memory_order_seq_cst);
  if (office.sleepers.load(std::memory_order_seq_cst))
    futex_wake_all(&office.bell, FutexOf::kMachine);
}

void Links::wake() {
  if (mine_) ring(*mine_);
}

uint64_t Links::post(int peer, uint64_t key, const void* body, size_t size) {
  std::lock_guard lock(mutex_);
  Peer& p = *peers_[peer];
  if (p.leaving.empty() &&
      ring_of(*p.office, rank_).push(key, body, uint32_t(size))) {
    ++p.left;
    ring(*p.office);
  } else {
    p.leaving.push_back(
        {key, std::string(static_cast<const char*>(body), size)});
  }
  return ++p.posted;
}

bool Links::has_left(int peer, uint64_t number) {
  std::lock_guard lock(mutex_);
  return peers_[peer]->left >= number;
}

void Links::progress() {
  std::lock_guard lock(mutex_);
  for (int from = 0; from < size_; ++from) {
    if (!linked(from)) continue;
    Peer& p = *peers_[from];
    NoteRing& from_peer = ring_of(*mine_, from);
    while (from_peer.pop([&](uint64_t key, const char* body, size_t size) {
      p.came[key].emplace_back(body, size);
    })) {
    }
    bool ring_it = from_peer.room_is_wanted();
    while (!p.leaving.empty() &&
           ring_of(*p.office, rank_)
               .push(p.leaving.front().key, p.leaving.front().body.data(),
                     uint32_t(p.leaving.front().body.size()))) {
      p.leaving.pop_front();
      ++p.left;
      ring_it = true;
    }
    if (ring_it) ring(*p.office);
  }
}

bool Links::take(int peer, uint64_t key, void* body, size_t room) {
  std::lock_guard lock(mutex_);
  auto& came = peers_[peer]->came;
  const auto at = came.find(key);
  if (at == came.end()) return false;
  const std::string& oldest = at->second.front();
  if (room) memcpy(body, oldest.data(), std::min(room, oldest.size()));
  at->second.pop_front();
  if (at->second.empty()) came.erase(at);
  return true;
}

void Links::read(int peer, uint64_t location, void* to, size_t size) const {
  const Peer& p = *peers_[peer];
  int error = p.read(location, to, size);
  // The peer renews its leave (Readers), which takes a moment.
  for (uint64_t ns = 0; error == EPERM && ns < kWithdrawnNs; ns += kLookNs) {
    usleep(kLookNs / 1000);
    error = p.read(location, to, size);
  }
  // What was read is thrown away unless it was there all the time. The fence
  // pairs with withdraw()'s: where a byte was read that was written after a
  // withdrawal, the withdrawal is seen here.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (p.office->withdrawn.load(std::memory_order_relaxed))
    throw std::runtime_error("its call has failed");
  // Its number may have become another process's, which was read then.
  if (error == ESRCH || !p.lives())
    throw std::runtime_error("its process has ended");
  if (error)
    throw std::runtime_error(std::string("its memory cannot be read: ") +
                             strerror(error));
}

void Links::withdraw() {
  if (!mine_ || getpid() != pid_) return;
  mine_->withdrawn.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

const char* Links::lost(int peer) {
  Peer& p = *peers_[peer];
  // Acquire: who sees that a rank has left finds the notes that it sent before.
  if (p.office->left.load(std::memory_order_acquire)) return kLeftGroup;
  if (!p.lives()) return "its process has ended";
  // Relaxed: it is only a reason to end the wait.
  if (!p.office->withdrawn.load(std::memory_order_relaxed)) return nullptr;
  std::lock_guard lock(mutex_);
  if (!p.withdrawn_since) p.withdrawn_since = now_ns();
  return now_ns() - p.withdrawn_since > kWithdrawnNs ? "its call has failed"
                                                     : nullptr;
}

// The bell is read before the caller looks at what it waits for: if it rings in
// between, pause() returns at once.
Links::Wait::Wait(Links& on)
    : on_(on),
      seen_(on.mine_->bell.load(std::memory_order_seq_cst)),
      spins_until_(now_ns() + kSpinNs) {}

Links::Wait::~Wait() {
  // Relaxed: a wake-up too many does no harm.
  if (sleeps_) on_.mine_->sleepers.fetch_sub(1, std::memory_order_relaxed);
}

void Links::Wait::pause(uint64_t most_ns) {
  std::atomic<uint32_t>& bell = on_.mine_->bell;
  if (!sleeps_) {
    while (bell.load(std::memory_order_acquire) == seen_)
      if (now_ns() >= spins_until_) {
        on_.mine_->sleepers.fetch_add(1, std::memory_order_seq_cst);
        sleeps_ = true;
        break;
      }
  } else {
    futex_wait(&bell, seen_, std::clamp<uint64_t>(most_ns, 1, kLookNs),
               FutexOf::kMachine);
    readers().renew();
  }
  seen_ = bell.load(std::memory_order_seq_cst);
}

}  // namespace npu
