#include "csrc/links/links.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <stdexcept>

#include "csrc/base/clock.h"
#include "csrc/base/shared_futex.h"

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

struct Links::Peer {
  explicit Peer(const ProcessAddress& address) : process(address) {}

  struct Waiting {
    uint64_t key;
    std::string body;
  };

  Neighbour process;
  Office* office = nullptr;
  std::map<uint64_t, std::deque<std::string>> came;  // by key
  std::deque<Waiting> leaving;
  uint64_t posted = 0, left = 0;  // notes
  uint64_t withdrawn_since = 0;
};

Links::Links(int rank, int size)
    : rank_(rank), size_(size), pid_(getpid()), peers_(size) {
  static_assert(std::atomic<uint32_t>::is_always_lock_free,
                "other processes use it, too");
  static_assert(sizeof(Office) <= kHead);
  bytes_ = kHead + size_t(size) * sizeof(NoteRing);
  file_ = memfd_create("npu_dispatch_links", MFD_CLOEXEC);
  if (file_ < 0 || ftruncate(file_, off_t(bytes_))) return;
  void* const memory =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (memory == MAP_FAILED) return;
  mine_ = new (memory) Office;
  for (int p = 0; p < size; ++p) new (&ring_of(*mine_, p)) NoteRing;
  host_ = host_name_of_kernel();
}

Links::~Links() {
  // A forked child has the memory, too, but is not the rank.
  if (mine_ && getpid() == pid_) {
    // Release: who sees it finds all notes that were sent before.
    mine_->left.store(1, std::memory_order_release);
    for (const auto& peer : peers_)
      if (peer) ring(*peer->office);
  }
  for (int p = 0; p < size_; ++p) close(p);
  if (mine_) munmap(mine_, bytes_);
  if (file_ >= 0) ::close(file_);
}

NoteRing& Links::ring_of(Office& office, int from) const {
  return reinterpret_cast<NoteRing*>(reinterpret_cast<char*>(&office) +
                                     kHead)[from];
}

std::string Links::address() const {
  ProcessAddress address{host_, pid_, file_, 0, 0};
  if (mine_) {
    address.token = mine_->token;
    address.token_location = reinterpret_cast<uint64_t>(&mine_->token);
  }
  return address.text();
}

bool Links::open(int peer, const std::string& text) {
  const ProcessAddress address = ProcessAddress::parse(text);
  if (peer == rank_ || host_.empty() || address.host != host_) return false;
  auto made = std::make_unique<Peer>(address);
  const int file = made->process.is_open() ? made->process.open_file() : -1;
  if (file < 0) return false;
  void* const memory =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory == MAP_FAILED) return false;
  made->office = static_cast<Office*>(memory);
  peers_[peer] = std::move(made);
  return true;
}

void Links::close(int peer) {
  if (peers_[peer]) munmap(peers_[peer]->office, bytes_);
  peers_[peer] = nullptr;
}

int Links::linked_peers() const {
  int n = 0;
  for (const auto& peer : peers_) n += bool(peer);
  return n;
}

// Sequentially consistent, as in Wait: either the sleeper counted itself before
// `sleepers` is read here, and is woken, or it reads the new number of the
// bell, and sees, by that load, all that was written before the bell rang.
void Links::ring(Office& office) const {
  office.bell.fetch_add(1, std::memory_order_seq_cst);
  if (office.sleepers.load(std::memory_order_seq_cst))
    shared_futex_wake_all(&office.bell);
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
    if (!peers_[from]) continue;
    Peer& p = *peers_[from];
    NoteRing& from_peer = ring_of(*mine_, from);
    while (from_peer.pop([&](const Note& note) {
      p.came[note.key].emplace_back(note.body, note.size);
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
  const int error = p.process.read(location, to, size);
  // What was read is thrown away unless it was there all the time. The fence
  // pairs with withdraw()'s: where a byte was read that was written after a
  // withdrawal, the withdrawal is seen here.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (p.office->withdrawn.load(std::memory_order_relaxed))
    throw std::runtime_error("its call has failed");
  // Its number may have become another process's, which was read then.
  if (error == ESRCH || !p.process.lives())
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
  if (p.office->left.load(std::memory_order_acquire))
    return "it has left the group";
  if (!p.process.lives()) return "its process has ended";
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
    shared_futex_wait(&bell, seen_, std::min(most_ns, kLookNs));
  }
  seen_ = bell.load(std::memory_order_seq_cst);
}

}  // namespace npu
