// The failure channel of a job: each rank learns within a second that another
// is lost or has failed, and which one, also where the two share no group.
//
// Rank 0 of the default group has a connection to every other rank, apart from
// Gloo's. A connection that ends without a farewell, or whose other host is
// silent, is a lost rank; who hears of one ends the waits of all groups. A
// thread of its own serves the connections: it needs neither the interpreter
// nor a launcher, so that no program is taken for lost because it computes.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "csrc/base/event_fd.h"
#include "csrc/distributed/job_socket.h"
#include "csrc/distributed/transport.h"

namespace npu {

class JobLink {
 public:
  // Connects this rank; all ranks call it with the same store. The groups that
  // are made from now on belong to this job. Throws where rank 0 cannot be
  // reached within the timeout.
  static void join(c10d::Store& store, int rank, int size,
                   Milliseconds timeout);
  // The job that was joined last; null: none, or of one rank.
  static std::shared_ptr<JobLink> current();
  // For the end of the process: tells each job that was joined that this rank
  // ends well ("") or why it fails, and returns when that is sent.
  static void end_all(const std::string& failure);
  // Ends wait_for_end() of each job: a thread of the interpreter's has to be
  // back from it before the interpreter ends.
  static void end_waits();

  JobLink(int rank, int size);
  JobLink(const JobLink&) = delete;

  int rank() const { return rank_; }

  // Any thread, the rest too. From now on a failure of the job aborts it.
  // Returns whether it is the job's first.
  bool watch(const std::shared_ptr<Transport>& transport);
  // This rank has failed: all learn it, this process, too, if it is the job's
  // first failure. The text names the rank.
  void fail(const std::string& text);
  // This rank has no more to do with the others: its end is no loss. It hears
  // of failures as before, since calls of it may be under way.
  void leave();

  // What went wrong first; "": nothing has.
  std::string failure() const;
  // The same, after waiting for it; "": nothing has by then.
  std::string await_failure(Milliseconds most) const;
  // Waits for a failure. Nothing: this rank has left the job before one, or
  // end_waits() was called.
  std::optional<std::string> wait_for_end() const;
  bool has_left(int rank) const;

 private:
  struct Stranger {
    Connection connection;
    std::chrono::steady_clock::time_point until;  // it has to say who it is
  };
  void start();
  void serve();
  bool everyone_left() const;
  void take_posted();
  void accept_strangers();
  bool introduced(Stranger& stranger, std::vector<Word>& words);
  void hear(const Word& word, int from);
  void hear_all(Connection& connection, int from);
  void lost(int peer, int error);
  void relay(const Word& word, int except);
  bool first_failure(const std::string& text);
  void post(Word word);
  void wait_until_sent();
  bool in_child() const;

  const int rank_, size_;
  const int pid_;
  // The thread's alone, once it runs.
  Socket listener_;                                 // of rank 0
  std::string token_, welcome_;                     // of rank 0
  std::vector<Stranger> strangers_;                 // of rank 0
  std::vector<std::unique_ptr<Connection>> peers_;  // by rank; or null
  EventFd wake_;                                    // something was posted

  mutable std::mutex mutex_;  // guards the rest
  mutable std::condition_variable changed_;
  std::string failure_;
  std::vector<bool> left_;  // by rank
  bool watched_ = false;
  std::vector<std::weak_ptr<Transport>> transports_;
  std::vector<Word> posted_;
  bool sent_ = true;  // all that was posted
  bool served_ = false;
  bool waits_end_ = false;
};

}  // namespace npu
