#include "csrc/distributed/job_link.h"

#include <c10/util/Exception.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <sstream>
#include <thread>
#include <utility>

#include "csrc/distributed/own_address.h"

namespace npu {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kKey = "npu_dispatch/job";
// Of connections that have not said which rank they are: a port scanner may
// have these.
constexpr size_t kStrangers = 64;
constexpr std::chrono::seconds kIntroduction{10};
// How long a process that ends waits for its last word to be sent.
constexpr std::chrono::seconds kLastWord{1};

struct Joined {
  std::mutex mutex;  // guards the rest
  std::shared_ptr<JobLink> last;
  std::vector<std::weak_ptr<JobLink>> all;
};
Joined& joined() {
  static auto* const instance = new Joined;
  return *instance;
}

std::vector<std::weak_ptr<JobLink>> all_joined() {
  std::lock_guard lock(joined().mutex);
  return joined().all;
}

std::string random_text() {
  std::random_device random;
  std::string text;
  for (int i = 0; i < 4; ++i) {
    char part[9];
    snprintf(part, sizeof part, "%08x", random());
    text += part;
  }
  return text;
}

// What rank 0 leaves in the store.
struct Invitation {
  std::string token, welcome, address;
  int port = 0;

  std::string text() const {
    return token + ' ' + welcome + ' ' + std::to_string(port) + ' ' + address;
  }
  static Invitation read(const std::string& text) {
    Invitation it;
    std::istringstream(text) >> it.token >> it.welcome >> it.port >> it.address;
    return it;
  }
};

// Tries once. Throws std::system_error.
std::unique_ptr<Connection> introduce_to(const Invitation& to, int rank,
                                         Clock::time_point deadline) {
  const auto left = [&] {
    const auto ms =
        std::chrono::duration_cast<Milliseconds>(deadline - Clock::now());
    return std::max(ms, Milliseconds(1));
  };
  auto connection = std::make_unique<Connection>(
      Socket::connected_to(to.address, to.port, left()));
  connection->say({Word::kHello, rank, to.token});
  int error = connection->send();
  std::vector<Word> words;
  while (!error && words.empty()) {
    pollfd ready{connection->fd(), POLLIN, 0};
    if (poll(&ready, 1, int(left().count())) == 0)
      error = ETIMEDOUT;
    else
      error = connection->receive(words);
  }
  if (!error &&
      (words[0].kind != Word::kWelcome || words[0].text != to.welcome))
    error = EPROTO;
  if (error)
    throw std::system_error(
        error, std::generic_category(),
        "no answer from " + to.address + " port " + std::to_string(to.port));
  return connection;
}

// What earlier ranks left in the store may be there before rank 0 has come, so
// this tries again for a while.
std::unique_ptr<Connection> introduce(c10d::Store& store, int rank,
                                      Milliseconds timeout) {
  constexpr std::chrono::seconds kTry{20};
  constexpr Milliseconds kPause{20};
  const auto deadline = Clock::now() + std::min<Milliseconds>(timeout, kTry);
  for (;;) {
    const auto invitation = Invitation::read(store.get_to_str(kKey));
    try {
      return introduce_to(invitation, rank, deadline);
    } catch (const std::system_error& e) {
      TORCH_CHECK_WITH(
          DistBackendError, Clock::now() < deadline, "hccl: rank ", rank,
          " does not reach rank 0: ", e.what(),
          "; see whether a firewall is between the hosts, and whether "
          "GLOO_SOCKET_IFNAME names the network that they share");
      std::this_thread::sleep_for(kPause);
    }
  }
}

}  // namespace

JobLink::JobLink(int rank, int size)
    : rank_(rank), size_(size), pid_(getpid()), peers_(size), left_(size) {}

void JobLink::join(c10d::Store& store, int rank, int size,
                   Milliseconds timeout) {
  std::shared_ptr<JobLink> link;
  if (size > 1) {
    link = std::make_shared<JobLink>(rank, size);
    if (rank == 0) {
      Invitation invitation{random_text(), random_text(), own_address(size)};
      link->listener_ = Socket::listening_at(invitation.address);
      invitation.port = link->listener_.port();
      link->token_ = invitation.token;
      link->welcome_ = invitation.welcome;
      store.set(kKey, invitation.text());
    } else {
      link->peers_[0] = introduce(store, rank, timeout);
    }
    // The thread keeps the object: jobs that were left are heard of until all
    // their ranks have left. No signal of the process is handled on it.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const auto restored = [&] {
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
    };
    try {
      std::thread([link] {
        pthread_setname_np(pthread_self(), "npu-job");
        link->serve();
      }).detach();
    } catch (...) {
      restored();
      throw;
    }
    restored();
  }
  std::lock_guard lock(joined().mutex);
  joined().last = link;
  if (link) joined().all.push_back(link);
}

std::shared_ptr<JobLink> JobLink::current() {
  std::lock_guard lock(joined().mutex);
  return joined().last;
}

void JobLink::end_all(const std::string& failure) {
  for (const auto& one : all_joined())
    if (const auto link = one.lock()) {
      if (failure.empty())
        link->leave();
      else
        link->fail("lost rank " + std::to_string(link->rank_) + ": " + failure);
      link->wait_until_sent();
    }
}

void JobLink::end_waits() {
  for (const auto& one : all_joined())
    if (const auto link = one.lock()) {
      {
        std::lock_guard lock(link->mutex_);
        link->waits_end_ = true;
      }
      link->changed_.notify_all();
    }
}

bool JobLink::in_child() const { return getpid() != pid_; }

bool JobLink::watch(const std::shared_ptr<Transport>& transport) {
  std::string failure;
  bool first;
  {
    std::lock_guard lock(mutex_);
    const auto gone = [](const auto& one) { return one.expired(); };
    transports_.erase(
        std::remove_if(transports_.begin(), transports_.end(), gone),
        transports_.end());
    transports_.push_back(transport);
    failure = failure_;
    first = !std::exchange(watched_, true);
  }
  if (!failure.empty()) transport->abort(failure);
  return first;
}

bool JobLink::first_failure(const std::string& text) {
  std::vector<std::shared_ptr<Transport>> ended;
  {
    std::lock_guard lock(mutex_);
    if (!failure_.empty()) return false;
    failure_ = text;
    for (const auto& one : transports_)
      if (auto transport = one.lock()) ended.push_back(std::move(transport));
  }
  changed_.notify_all();
  for (const auto& transport : ended) transport->abort(text);
  return true;
}

void JobLink::fail(const std::string& text) {
  if (in_child() || has_left(rank_) || !first_failure(text)) return;
  post({Word::kFailure, rank_, text});
  // Before the program learns it, which may end at once.
  wait_until_sent();
}

void JobLink::leave() {
  if (in_child()) return;
  {
    std::lock_guard lock(mutex_);
    if (left_[rank_]) return;
    left_[rank_] = true;
  }
  changed_.notify_all();
  post({Word::kBye, rank_});
  wait_until_sent();
}

void JobLink::post(Word word) {
  {
    std::lock_guard lock(mutex_);
    posted_.push_back(std::move(word));
    sent_ = false;
  }
  wake_.signal();
}

void JobLink::wait_until_sent() {
  if (in_child()) return;
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kLastWord, [&] { return sent_ || served_; });
}

std::string JobLink::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

std::string JobLink::await_failure(Milliseconds most) const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, most, [&] { return !failure_.empty() || served_; });
  return failure_;
}

std::optional<std::string> JobLink::wait_for_end() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return !failure_.empty() || left_[rank_] || served_ || waits_end_;
  });
  if (failure_.empty()) return std::nullopt;
  return failure_;
}

bool JobLink::has_left(int rank) const {
  std::lock_guard lock(mutex_);
  return left_[rank];
}

bool JobLink::everyone_left() const {
  std::lock_guard lock(mutex_);
  return std::find(left_.begin(), left_.end(), false) == left_.end();
}

void JobLink::serve() {
  for (;;) {
    take_posted();
    std::vector<pollfd> ready{{wake_.fd(), POLLIN, 0}};
    bool unsent = false, connected = rank_ == 0;
    const auto add = [&](const Connection& c) {
      unsent |= c.unsent();
      ready.push_back(
          {c.fd(), short(c.unsent() ? POLLIN | POLLOUT : POLLIN), 0});
    };
    std::vector<int> ranks;
    for (int r = 0; r < size_; ++r)
      if (peers_[r]) {
        add(*peers_[r]);
        ranks.push_back(r);
        connected = true;
      }
    if (!unsent) {
      std::lock_guard lock(mutex_);
      sent_ = posted_.empty();
    }
    changed_.notify_all();
    if (!connected || (!unsent && everyone_left())) break;
    const size_t known = ready.size();
    for (const Stranger& s : strangers_) add(s.connection);
    const size_t old = strangers_.size();
    if (listener_) ready.push_back({listener_.fd(), POLLIN, 0});
    constexpr int kLook = 1000;  // ms: whether peers are silent
    poll(ready.data(), ready.size(), kLook);
    if (ready[0].revents) wake_.clear();
    for (size_t i = 0; i < ranks.size(); ++i) {
      Connection& peer = *peers_[ranks[i]];
      if (ready[1 + i].revents)
        hear_all(peer, ranks[i]);
      else if (peer.silent())
        lost(ranks[i], ETIMEDOUT);
    }
    for (size_t i = 0; i < old; ++i)
      if (ready[known + i].revents) {
        // Its first word says who it is; more may have come with it.
        std::vector<Word> words;
        Stranger& one = strangers_[i];
        if (one.connection.receive(words) ||
            (!words.empty() && !introduced(one, words)))
          one.until = {};
      }
    const auto now = Clock::now();
    const auto over = [&](const Stranger& s) {
      return s.connection.fd() < 0 || s.until <= now;
    };
    strangers_.erase(std::remove_if(strangers_.begin(), strangers_.end(), over),
                     strangers_.end());
    if (listener_ && ready.back().revents) accept_strangers();
  }
  for (auto& peer : peers_) peer.reset();
  strangers_.clear();
  listener_ = {};
  {
    std::lock_guard lock(mutex_);
    served_ = true;
  }
  changed_.notify_all();
}

void JobLink::take_posted() {
  std::vector<Word> posted;
  {
    std::lock_guard lock(mutex_);
    posted.swap(posted_);
  }
  for (const Word& word : posted) relay(word, rank_);
}

void JobLink::accept_strangers() {
  while (Socket came = listener_.accepted()) {
    if (strangers_.size() == kStrangers) strangers_.erase(strangers_.begin());
    strangers_.push_back(
        {Connection(std::move(came)), Clock::now() + kIntroduction});
  }
}

bool JobLink::introduced(Stranger& stranger, std::vector<Word>& words) {
  const Word& hello = words[0];
  if (hello.kind != Word::kHello || hello.text != token_ || hello.rank < 1 ||
      hello.rank >= size_ || peers_[hello.rank])
    return false;
  const int rank = hello.rank;
  auto& peer = peers_[rank];
  peer = std::make_unique<Connection>(std::move(stranger.connection));
  peer->say({Word::kWelcome, 0, welcome_});
  const std::string so_far = failure();
  if (!so_far.empty()) peer->say({Word::kFailure, 0, so_far});
  for (size_t i = 1; i < words.size(); ++i) hear(words[i], rank);
  if (const int error = peer->send()) lost(rank, error);
  return true;
}

void JobLink::hear_all(Connection& connection, int from) {
  std::vector<Word> words;
  int error = connection.receive(words);
  for (const Word& word : words) hear(word, from);
  if (!error) error = connection.send();
  if (error) lost(from, error);
}

void JobLink::hear(const Word& word, int from) {
  if (word.kind == Word::kBye) {
    if (word.rank < 0 || word.rank >= size_) return;
    {
      std::lock_guard lock(mutex_);
      left_[word.rank] = true;
    }
    if (rank_ == 0) relay(word, from);
  } else if (word.kind == Word::kFailure) {
    if (first_failure(word.text) && rank_ == 0) relay(word, from);
  }
}

// A rank that has failed says so first, so its end is told of no more.
void JobLink::lost(int peer, int error) {
  peers_[peer].reset();
  if (has_left(peer)) return;
  const bool ended = error == ECONNRESET || error == EPIPE;
  const Word word{Word::kFailure, peer,
                  "lost rank " + std::to_string(peer) +
                      (ended ? ": its process ended"
                             : std::string(": its host does not answer (") +
                                   strerror(error) + ")")};
  if (first_failure(word.text) && rank_ == 0) relay(word, peer);
}

void JobLink::relay(const Word& word, int except) {
  for (int r = 0; r < size_; ++r) {
    if (r == except || !peers_[r]) continue;
    peers_[r]->say(word);
    // An error is seen when the connection is read.
    peers_[r]->send();
  }
}

}  // namespace npu
