#include "csrc/torch/shared_memory.h"

#include <c10/util/Exception.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "csrc/driver/driver.h"
#include "csrc/engine/engine.h"
#include "csrc/engine/stillness.h"
#include "csrc/graph/capture.h"
#include "csrc/observe/observer.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"
#include "csrc/torch/pluggable_memory.h"
#include "csrc/torch/tensor.h"

namespace npu {
namespace {

constexpr uint64_t kPatienceNs = 30'000'000'000;

// Identifies a file; the number of a descriptor would not, since it is used
// again.
using FileId = std::pair<uint64_t, uint64_t>;

FileId id_of(int fd) {
  struct stat info;
  TORCH_CHECK(!fstat(fd, &info),
              "a shared tensor's handle is no file: ", strerror(errno));
  return {uint64_t(info.st_dev), uint64_t(info.st_ino)};
}

// Another process's segment, mapped.
struct Opened {
  Opened(int device, int fd, size_t size)
      : device_(device),
        bytes(size),
        address(static_cast<char*>(open(device, fd, size))),
        handle(fcntl(fd, F_DUPFD_CLOEXEC, 0)) {}
  Opened(const Opened&) = delete;
  ~Opened() {
    driver().segment_free(device_, address, bytes);
    if (handle >= 0) close(handle);
  }

  bool holds(const void* at) const {
    return at >= address && at < address + bytes;
  }

 private:
  static void* open(int device, int fd, size_t size) {
    TORCH_CHECK(driver().segment_open, "the driver ", driver().name,
                " has no memory that processes share");
    void* found = driver().segment_open(device, fd, size);
    TORCH_CHECK(found,
                "a shared tensor's memory cannot be mapped: ", strerror(errno));
    return found;
  }
  const int device_;

 public:
  const size_t bytes;
  char* const address;
  const int handle;  // for processes that this one sends the tensor on to
};

// Another process's ledger. Locks belong to an open file, so one file serves
// all slots: a model would else need a descriptor for each of its parameters.
struct Ledger {
  explicit Ledger(int fd) : file(fcntl(fd, F_DUPFD_CLOEXEC, 0)) {
    void* at = file < 0 ? MAP_FAILED
                        : mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_NORESERVE, file, 0);
    if (at == MAP_FAILED) {
      const int why = errno;
      if (file >= 0) close(file);
      TORCH_CHECK(false,
                  "a shared tensor's ledger cannot be mapped: ", strerror(why));
    }
    words = static_cast<std::atomic<uint32_t>*>(at);
  }
  Ledger(const Ledger&) = delete;
  ~Ledger() {
    munmap(words, kBytes);
    close(file);
  }

  // Release: whoever reads the count sees the lock.
  void received(uint32_t slot) {
    words[slot].fetch_add(1, std::memory_order_release);
  }
  void hold(uint32_t slot) {
    if (held[slot]++ == 0) lock(slot, F_RDLCK);
  }
  void drop(uint32_t slot) {
    const auto at = held.find(slot);
    if (--at->second) return;
    held.erase(at);
    lock(slot, F_UNLCK);
  }

 private:
  static constexpr size_t kBytes = kLedgerSlots * sizeof(uint32_t);

  // Never waits: nobody takes an exclusive lock.
  void lock(uint32_t slot, short kind) {
    struct flock what {};
    what.l_type = kind;
    what.l_whence = SEEK_SET;
    what.l_start = off_t(slot);
    what.l_len = 1;
    fcntl(file, F_OFD_SETLK, &what);
  }

  const int file;
  std::atomic<uint32_t>* words;
  std::map<uint32_t, int> held;  // by slot: how many storages hold it
};

// What a storage over another process's memory keeps alive.
struct Received {
  std::shared_ptr<Opened> segment;
  std::shared_ptr<Ledger> ledger;
  uint32_t slot;
};

struct Registry {
  std::mutex mutex;
  std::map<FileId, std::weak_ptr<Opened>> segments;
  std::map<FileId, std::weak_ptr<Ledger>> ledgers;
  std::multimap<const void*, Received> holds;  // by the storage's address
  std::mutex stillness;                        // allows one Stillness at a time
};
Registry& registry() {
  static Registry* const instance = new Registry;  // launchers outlive statics
  return *instance;
}

// Drops one of the holds at the address, no matter which: all of them keep the
// same memory alive. Called on a launcher's thread, or on the one that frees
// the tensor.
void let_go(void* address, size_t, int, void*) {
  Received gone;
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  const auto at = r.holds.find(address);
  gone = std::move(at->second);
  r.holds.erase(at);
  gone.ledger->drop(gone.slot);
  // It is unmapped under the mutex, so that nobody finds it meanwhile.
  gone = {};
}

const PluggedAllocator kOwner{.free = &let_go};

template <typename T, typename... Args>
std::shared_ptr<T> find_or_make(std::map<FileId, std::weak_ptr<T>>& all,
                                FileId id, Args... args) {
  std::weak_ptr<T>& slot = all[id];
  if (auto found = slot.lock()) return found;
  auto made = std::make_shared<T>(args...);
  slot = made;
  std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
  return made;
}

void check_slot(uint32_t slot) {
  TORCH_CHECK(slot < kLedgerSlots, "a shared tensor's handle is damaged");
}

}  // namespace

SharedMemory share_memory(const at::Tensor& tensor) {
  check_usable();
  const c10::Storage& storage = tensor.storage();
  const int device = storage.device().index();
  const void* const address = storage.data();
  forbid_anywhere("sending a tensor to another process",
                  "its memory holds what the device has computed, which is "
                  "waited for; send it before or after the capture");
  synchronize(device);
  storage.unsafeGetStorageImpl()->set_resizable(false);
  Registry& r = registry();
  {
    std::lock_guard lock(r.mutex);
    const auto hold = r.holds.find(address);
    if (hold != r.holds.end()) {
      const Opened& segment = *hold->second.segment;
      return {segment.handle, segment.bytes,
              uint64_t(static_cast<const char*>(address) - segment.address)};
    }
  }
  const auto refuse = [&](const std::string& why) {
    TORCH_CHECK(false, "npu:", device, ": ", storage.nbytes(),
                " bytes cannot be shared with other processes: ", why,
                "; send a copy, tensor.cpu(), instead");
  };
  std::lock_guard one_at_a_time(r.stillness);
  std::unique_ptr<Stillness> stillness;
  const bool runs_beside_us = !observed(Observer::kRuns);
  if (runs_beside_us && !allocator(device).is_shared(address)) {
    stillness = std::make_unique<Stillness>(device, kPatienceNs);
    if (!stillness->reached())
      refuse("streams wait for work that has not been queued, or run for long");
  }
  const CachingAllocator::Shared shared = allocator(device).share(address);
  if (shared.handle < 0) refuse(shared.why);
  return {shared.handle, shared.bytes, shared.offset};
}

at::Tensor open_shared_memory(int device, int segment, SharedMemory where,
                              size_t bytes, int ledger, uint32_t slot) {
  check_usable(device);
  check_slot(slot);
  TORCH_CHECK(where.offset <= where.segment_bytes &&
                  bytes <= where.segment_bytes - where.offset,
              "a shared tensor's handle is damaged");
  Stream& stream = usable_stream(device);
  Registry& r = registry();
  char* address;
  {
    std::lock_guard lock(r.mutex);
    auto memory = find_or_make(r.segments, id_of(segment), device, segment,
                               size_t(where.segment_bytes));
    auto book = find_or_make(r.ledgers, id_of(ledger), ledger);
    address = memory->address + where.offset;
    book->hold(slot);
    book->received(slot);
    r.holds.emplace(address,
                    Received{std::move(memory), std::move(book), slot});
  }
  at::Tensor t =
      device_tensor(adopt(address, bytes, stream, &kOwner), bytes,
                    caffe2::TypeMeta::Make<uint8_t>(), /*resizable=*/false);
  t.unsafeGetTensorImpl()->set_sizes_contiguous({int64_t(bytes)});
  return t;
}

void received_again(int ledger, uint32_t slot) {
  check_slot(slot);
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  find_or_make(r.ledgers, id_of(ledger), ledger)->received(slot);
}

}  // namespace npu
