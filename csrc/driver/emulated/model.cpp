#include "csrc/driver/emulated/model.h"

#include <algorithm>

namespace npu {

DeviceModel::Queue* DeviceModel::add(int priority) {
  return queues_.emplace_back(std::make_unique<Queue>(priority)).get();
}

void DeviceModel::remove(Queue* queue) {
  std::erase_if(queues_, [&](const auto& q) { return q.get() == queue; });
}

void DeviceModel::submit(Queue& queue, const Job& job) {
  queue.waiting_.push_back(job);
  queue.expected_end_ =
      std::max(queue.expected_end_, job.ready) + job.overhead + job.work;
}

uint64_t DeviceModel::start_of(const Queue& queue) const {
  const Job& job = queue.waiting_.front();
  const auto& servers = servers_[size_t(job.engine)];
  return std::max({job.ready, queue.free_at_,
                   *std::min_element(servers.begin(), servers.end())});
}

// The work of kernels on several queues is done one after another: each kernel
// is given the rates of the whole device, and together they must not exceed
// those.
void DeviceModel::begin(Queue& queue, uint64_t start) {
  const Job job = queue.waiting_.front();
  queue.waiting_.pop_front();
  auto& servers = servers_[size_t(job.engine)];
  uint64_t& server = *std::min_element(servers.begin(), servers.end());
  uint64_t end = start + job.overhead + job.work;
  if (job.engine == Engine::kCompute && job.work) {
    end = std::max(start + job.overhead, work_free_) + job.work;
    work_free_ = end;
  }
  server = end;
  queue.last_ = job;
  queue.server_ = &server;
  const uint64_t alone =
      std::max(queue.free_at_, job.ready) + job.overhead + job.work;
  queue.expected_end_ += end - alone;
  queue.free_at_ = end;
  queue.begun.push_back({job.number, start, end});
}

std::pair<DeviceModel::Turn, DeviceModel::Queue*> DeviceModel::next() const {
  std::pair<Turn, Queue*> found(Turn(UINT64_MAX, 0, 0), nullptr);
  for (const auto& queue : queues_) {
    if (queue->waiting_.empty()) continue;
    const Turn turn(start_of(*queue), queue->priority_, queue->free_at_);
    if (!found.second || turn < found.first) found = {turn, queue.get()};
  }
  return found;
}

uint64_t DeviceModel::next_start() const { return std::get<0>(next().first); }

DeviceModel::Queue& DeviceModel::begin_next() {
  const auto [turn, queue] = next();
  begin(*queue, std::get<0>(turn));
  return *queue;
}

// The tasks of a queue run one after another, so only the last one that has
// begun can be under way. Those of other queues have been given their times
// already, and keep them: the arithmetic units are free when the last has
// ended.
void DeviceModel::reset(Queue& queue, uint64_t now) {
  if (queue.free_at_ > now) *queue.server_ = now;
  queue.waiting_.clear();
  queue.begun.clear();
  queue.free_at_ = std::min(queue.free_at_, now);
  queue.expected_end_ = queue.free_at_;
  queue.last_.work = 0;
  uint64_t last = now;
  for (const auto& other : queues_)
    if (other->last_.engine == Engine::kCompute && other->last_.work)
      last = std::max(last, other->free_at_);
  work_free_ = std::min(work_free_, last);
}

uint64_t DeviceModel::next_end(const Queue& queue) const {
  if (!queue.begun.empty()) return queue.begun.front().end;
  if (queue.waiting_.empty()) return 0;
  const Job& job = queue.waiting_.front();
  return start_of(queue) + job.overhead + job.work;
}

}  // namespace npu
