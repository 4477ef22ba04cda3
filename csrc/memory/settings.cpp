#include "csrc/memory/settings.h"

#include <stdio.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <deque>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "csrc/base/align.h"
#include "csrc/base/env.h"
#include "csrc/driver/registry.h"
#include "csrc/memory/caching_allocator.h"
#include "csrc/memory/pool.h"

namespace npu {
namespace {

constexpr uint64_t kLeastSplitMiB = 20;
constexpr const char* kName = "PYTORCH_NPU_ALLOC_CONF";
// The keys that read_entry() reads. Other keys (kAccepted) are accepted from
// programs written for torch_npu or torch.cuda.
constexpr const char* kHonoured[] = {"max_split_size_mb",
                                     "max_non_split_rounding_mb",
                                     "garbage_collection_threshold",
                                     "roundup_power2_divisions",
                                     "per_process_memory_fraction",
                                     "expandable_segments",
                                     "base_addr_aligned_kb",
                                     "page_size",
                                     "backend"};
enum class Value { kBool, kNumber };
struct Accepted {
  const char* key;
  Value value;
};
// Keys without effect: pinned memory here is plain memory, the allocator's lock
// is never held while the driver is called, and pending blocks are looked at a
// few at a time.
constexpr Accepted kAccepted[] = {
    {"pinned_use_host_register", Value::kBool},
    {"pinned_use_cuda_host_register", Value::kBool},
    {"pinned_use_hip_host_register", Value::kBool},
    {"pinned_num_register_threads", Value::kNumber},
    {"pinned_use_background_threads", Value::kBool},
    {"pinned_reserve_segment_size_mb", Value::kNumber},
    {"pinned_max_round_threshold_mb", Value::kNumber},
    {"pinned_max_cached_size_mb", Value::kNumber},
    {"pinned_free_catch_all", Value::kBool},
    {"pinned_mem_register", Value::kBool},
    {"pin_memory_expandable_segments", Value::kBool},
    {"release_lock_on_malloc", Value::kBool},
    {"release_lock_on_npumalloc", Value::kBool},
    {"release_lock_on_cudamalloc", Value::kBool},
    {"release_lock_on_hipmalloc", Value::kBool},
    {"throw_on_npumalloc_oom", Value::kBool},
    {"throw_on_cudamalloc_oom", Value::kBool},
    {"graph_capture_record_stream_reuse", Value::kBool},
    {"multi_stream_lazy_reclaim", Value::kBool},
    {"large_segment_size_mb", Value::kNumber},
    {"segment_size_mb", Value::kNumber},
    {"roundup_bypass_threshold_mb", Value::kNumber},
};

// In how many letters two words differ (insertions, deletions, exchanges).
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t other = std::min(row[j], row[j - 1]) + 1;
      const size_t same = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min(other, same);
    }
  }
  return row[b.size()];
}

[[noreturn]] void unknown(std::string_view key) {
  std::string keys, nearest;
  size_t least = SIZE_MAX;
  const auto look = [&](const char* known) {
    const size_t d = distance(key, known);
    if (d < least) nearest = known;
    least = std::min(least, d);
  };
  for (const char* known : kHonoured) {
    keys += std::string(keys.empty() ? "" : ", ") + known;
    look(known);
  }
  for (const Accepted& known : kAccepted) look(known.key);
  throw std::runtime_error(std::string(kName) + ": unknown key '" +
                           std::string(key) + "'; the keys are " + keys +
                           "; the nearest that is known is " + nearest);
}

[[noreturn]] void wrong(std::string_view what, std::string_view value,
                        const char* right) {
  throw std::runtime_error(std::string(kName) + ": " + std::string(what) +
                           " must be " + right + ", but got '" +
                           std::string(value) + "'");
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// The parts between commas; those in brackets stay together.
std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  int depth = 0;
  for (size_t at = 0; at <= text.size(); ++at) {
    if (at < text.size() && text[at] == '[') ++depth;
    if (at < text.size() && text[at] == ']') --depth;
    if (at < text.size() && (text[at] != ',' || depth > 0)) continue;
    const std::string_view part = trimmed(text.substr(begin, at - begin));
    if (!part.empty()) parts.push_back(part);
    begin = at + 1;
  }
  return parts;
}

template <typename T>
bool read(std::string_view text, T& value) {
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool read_bool(std::string_view key, std::string_view value) {
  if (value == "True" || value == "true" || value == "1") return true;
  if (value == "False" || value == "false" || value == "0") return false;
  wrong(key, value, "True or False");
}

[[noreturn]] void wrong_divisions(std::string_view value) {
  wrong("roundup_power2_divisions", value,
        "a power of two, or a list such as [256:1,512:2,>:4] of powers of two "
        "by MiB");
}

uint32_t read_divisions(std::string_view value) {
  uint32_t divisions = 0;
  if (!read(value, divisions) || !std::has_single_bit(divisions))
    wrong_divisions(value);
  return divisions;
}

size_t power_index(uint64_t bytes) {
  if (bytes < kBytesPerMiB) return 0;
  const size_t index =
      size_t(std::bit_width(bytes)) - size_t(std::bit_width(kBytesPerMiB));
  return index < AllocatorSettings::kPowers ? index
                                            : AllocatorSettings::kPowers - 1;
}

// Reads "N", or "[MiB:N,...,>:N]". An entry is for the sizes from its own up to
// twice that, and for all smaller sizes that no earlier entry is for.
void read_roundup(std::string_view value, AllocatorSettings& to) {
  auto& divisions = to.roundup_divisions;
  if (!value.starts_with('[')) {
    divisions.fill(read_divisions(value));
    return;
  }
  if (!value.ends_with(']')) wrong_divisions(value);
  size_t next = 0;
  for (std::string_view part : split(value.substr(1, value.size() - 2))) {
    const size_t colon = part.find(':');
    if (colon == std::string_view::npos) wrong_divisions(part);
    const std::string_view size = trimmed(part.substr(0, colon));
    const uint32_t count = read_divisions(trimmed(part.substr(colon + 1)));
    uint64_t mib = 0;
    size_t last = AllocatorSettings::kPowers - 1;
    if (size != ">") {
      if (!read(size, mib) || !std::has_single_bit(mib)) wrong_divisions(part);
      last = power_index(mib * kBytesPerMiB);
    }
    while (next <= last) divisions[next++] = count;
  }
}

void read_accepted(std::string_view key, std::string_view value,
                   AllocatorSettings& to) {
  for (const Accepted& known : kAccepted) {
    if (key != known.key) continue;
    uint64_t number = 0;
    if (known.value == Value::kBool) {
      read_bool(key, value);
    } else if (!read(value, number)) {
      wrong(key, value, "a number");
    }
    to.without_effect.emplace_back(key);
    return;
  }
  unknown(key);
}

void read_entry(std::string_view key, std::string_view value,
                AllocatorSettings& to) {
  if (key == "max_split_size_mb") {
    uint64_t mib = 0;
    if (!read(value, mib) || mib <= kLeastSplitMiB ||
        mib > SIZE_MAX / kBytesPerMiB)
      wrong(key, value, "a number of MiB above 20");
    to.max_split_size = mib * kBytesPerMiB;
  } else if (key == "garbage_collection_threshold") {
    if (!read(value, to.gc_threshold) || !(to.gc_threshold > 0) ||
        !(to.gc_threshold < 1))
      wrong(key, value, "above 0 and below 1");
  } else if (key == "max_non_split_rounding_mb") {
    uint64_t mib = 0;
    if (!read(value, mib) || mib <= kLeastSplitMiB ||
        mib > SIZE_MAX / kBytesPerMiB)
      wrong(key, value, "a number of MiB above 20");
    to.max_non_split_rounding = mib * kBytesPerMiB;
  } else if (key == "per_process_memory_fraction") {
    if (!read(value, to.memory_fraction) || !(to.memory_fraction > 0) ||
        !(to.memory_fraction <= 1))
      wrong(key, value, "above 0 and at most 1");
  } else if (key == "expandable_segments") {
    to.expandable_segments = read_bool(key, value);
  } else if (key == "roundup_power2_divisions") {
    read_roundup(value, to);
  } else if (key == "base_addr_aligned_kb") {
    uint64_t kib = 0;
    if (!read(value, kib) || kib > 16) wrong(key, value, "0 to 16");
  } else if (key == "page_size") {
    if (value != "1g") wrong(key, value, "1g");
  } else if (key == "backend") {
    to.guard = value == "guard";
    if (value != "native" && !to.guard)
      wrong(key, value,
            "native or guard; for an allocator of your own use "
            "torch.npu.memory.change_current_allocator()");
  } else {
    read_accepted(key, value, to);
  }
}

std::mutex mutex;  // guards the making of settings

// Makes new settings the current ones. The old ones are never freed: another
// thread may be reading them.
const AllocatorSettings& install(const std::string& text) {
  static auto* const all = new std::deque<AllocatorSettings>;
  static auto* const told = new std::set<std::string>;
  all->push_back(parse_allocator_settings(text));
  for (const std::string& key : all->back().without_effect)
    if (told->insert(key).second)
      fprintf(stderr, "npu_dispatch: %s: %s has no effect on this device\n",
              kName, key.c_str());
  // Release: readers find the settings filled.
  current_allocator_settings.store(&all->back(), std::memory_order_release);
  return all->back();
}

}  // namespace

std::atomic<const AllocatorSettings*> current_allocator_settings{nullptr};

AllocatorSettings parse_allocator_settings(const std::string& text) {
  AllocatorSettings settings;
  settings.text = text;
  for (std::string_view entry : split(text)) {
    const size_t colon = entry.find(':');
    if (colon == std::string_view::npos) wrong("an entry", entry, "key:value");
    read_entry(trimmed(entry.substr(0, colon)),
               trimmed(entry.substr(colon + 1)), settings);
  }
  for (uint32_t divisions : settings.roundup_divisions)
    settings.rounds |= divisions > 1;
  return settings;
}

const AllocatorSettings& read_allocator_settings() {
  std::lock_guard lock(mutex);
  if (auto* settings =
          current_allocator_settings.load(std::memory_order_relaxed))
    return *settings;
  return install(env_string(kName, ""));
}

void set_allocator_settings(const std::string& text) {
  double fraction;
  {
    std::lock_guard lock(mutex);
    if (parse_allocator_settings(text).guard)
      throw std::runtime_error(
          "backend:guard can only be asked for in the environment, as " +
          std::string(kName) + ": memory that is in use has no margins");
    fraction = install(text).memory_fraction;
  }
  if (!(fraction > 0)) return;
  for (int device = 0; device < driver().device_count(); ++device)
    if (allocator_exists(device)) allocator(device).set_fraction(fraction);
}

size_t block_bytes(size_t bytes, const AllocatorSettings& settings) {
  // More than any device has; leaves room for rounding up.
  constexpr size_t kAbsurd = size_t{1} << 60;
  if (bytes >= kAbsurd) return kAbsurd;
  if (settings.rounds) [[unlikely]] {
    const uint32_t divisions = settings.roundup_divisions[power_index(bytes)];
    if (divisions > 1 && bytes > kBlockQuantum * divisions)
      return round_up(round_up(bytes, std::bit_floor(bytes) / divisions),
                      kBlockQuantum);
  }
  return round_up(bytes, kBlockQuantum);
}

}  // namespace npu
