// Device memory that several processes see. The sender of a tensor keeps its
// storage until every process that was sent it has dropped it, or died.
//
// A process that sends has a ledger, a file without a name, with a slot for
// each storage that it has sent. A word of the slot counts the processes that
// have received the storage, and each of them holds a shared lock on the slot's
// byte, which the kernel releases when the process dies.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

namespace npu {

inline constexpr size_t kLedgerSlots = size_t{1} << 20;

struct SharedMemory {
  int handle;  // of the segment; the caller does not own it
  uint64_t segment_bytes;
  uint64_t offset;  // of the storage
};

// Makes the storage's memory, at its address, one that other processes can
// open; the storage cannot be resized any more. Waits for everything queued on
// the device. Throws within a capture, and where the memory cannot be shared.
SharedMemory share_memory(const at::Tensor& tensor);

// The bytes of a storage that another process shares, as a tensor of uint8. The
// caller keeps both descriptors. `slot`: the storage's slot in the sender's
// ledger, where this process is counted as a receiver.
at::Tensor open_shared_memory(int device, int segment, SharedMemory where,
                              size_t bytes, int ledger, uint32_t slot);

// Counts this process as a receiver of a storage that it has already.
void received_again(int ledger, uint32_t slot);

}  // namespace npu
