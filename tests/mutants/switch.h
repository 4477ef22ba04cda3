// Which of the planted mutants runs (mutate.py): the one whose number the
// environment names at the start. With NPU_MUTANTS_REACHED, a file of one byte
// per mutant, each notes there that its place was reached, in any process.
#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace npu_mutants {

struct Switch {
  int chosen = 0;
  unsigned char* reached = nullptr;

  Switch() {
    if (const char* number = getenv("NPU_MUTANT")) chosen = atoi(number);
    const char* path = getenv("NPU_MUTANTS_REACHED");
    const int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    struct stat status;
    if (file < 0 || fstat(file, &status)) return;
    void* bytes = mmap(nullptr, size_t(status.st_size), PROT_READ | PROT_WRITE,
                       MAP_SHARED, file, 0);
    if (bytes != MAP_FAILED) reached = static_cast<unsigned char*>(bytes);
    close(file);
  }
};

// Before anything of the program that a constructor may run.
[[gnu::init_priority(101)]] inline Switch chosen_switch;

}  // namespace npu_mutants

inline bool npu_mutant(int number) {
  using npu_mutants::chosen_switch;
  if (chosen_switch.reached) [[unlikely]]
    __atomic_store_n(&chosen_switch.reached[number], 1, __ATOMIC_RELAXED);
  return chosen_switch.chosen == number;
}
