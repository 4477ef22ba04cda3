// Device memory that several processes see. Who sends a tensor keeps its
// storage until everybody who was sent it has dropped it, or died.
//
// A process that sends has a ledger, a file without a name, with a slot for
// each storage that is out: a word counts those who have received it, and each
// of them holds a shared lock on the slot's byte, which the kernel lets go when
// the process dies.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

namespace npu {

inline constexpr size_t kLedgerSlots = size_t{1} << 20;

struct SharedMemory {
  int handle;  // of the segment; not the caller's
  uint64_t segment_bytes;
  uint64_t offset;  // of the storage
};

// Makes the storage's memory one that other processes can open, where it is,
// and never resized again. All that was queued on the device is done then.
// Throws within a capture, and where the memory cannot be shared.
SharedMemory share_memory(const at::Tensor& tensor);

// The bytes of a storage that another process shares, as a tensor of uint8.
// Takes neither descriptor. `slot`: the storage's in the sender's ledger, told
// that it has been received.
at::Tensor open_shared_memory(int device, int segment, SharedMemory where,
                              size_t bytes, int ledger, uint32_t slot);

// The same of a storage that this process has already.
void received_again(int ledger, uint32_t slot);

}  // namespace npu
