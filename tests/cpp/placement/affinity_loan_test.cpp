// Which CPUs a sleeping thread has, and who decides that.
#include "csrc/placement/affinity_loan.h"

#include "tests/cpp/check.h"
#include "tests/cpp/placement/cpus.h"

namespace npu {
namespace {

using check::cpus;

bool equal(const cpu_set_t& a, const cpu_set_t& b) { return CPU_EQUAL(&a, &b); }

TEST(AffinityLoan, IsGivenBack) {
  AffinityLoan loan;
  loan.begin(cpus({0, 1, 2}));
  EXPECT_TRUE(loan.changed() && !loan.changed());
  EXPECT_TRUE(loan.narrow(cpus({0, 1, 2}), 1));
  EXPECT_TRUE(equal(loan.set(), cpus({0, 2})));
  EXPECT_TRUE(loan.end(cpus({0, 2})));
  EXPECT_TRUE(equal(loan.owners(), cpus({0, 1, 2})));
  EXPECT_TRUE(!loan.changed());
}

TEST(AffinityLoan, AnotherWakerHasAnotherOfTheOwnersCpus) {
  AffinityLoan loan;
  loan.begin(cpus({0, 1, 2}));
  loan.narrow(cpus({0, 1, 2}), 1);
  EXPECT_TRUE(loan.narrow(cpus({0, 2}), 2));
  EXPECT_TRUE(equal(loan.set(), cpus({0, 1})));
  EXPECT_TRUE(loan.end(cpus({0, 1})));
  EXPECT_TRUE(equal(loan.owners(), cpus({0, 1, 2})));
}

TEST(AffinityLoan, WhatTheOwnerSetMeanwhileStays) {
  AffinityLoan loan;
  loan.begin(cpus({0, 1, 2, 3}));
  loan.narrow(cpus({0, 1, 2, 3}), 1);
  loan.changed();
  EXPECT_TRUE(!loan.end(cpus({1, 3})));
  EXPECT_TRUE(loan.changed());
  EXPECT_TRUE(equal(loan.owners(), cpus({1, 3})));
}

TEST(AffinityLoan, AWakerNarrowsWhatTheOwnerSetMeanwhile) {
  AffinityLoan loan;
  loan.begin(cpus({0, 1, 2, 3}));
  loan.narrow(cpus({0, 1, 2, 3}), 1);
  EXPECT_TRUE(loan.narrow(cpus({1, 3}), 3));
  EXPECT_TRUE(equal(loan.set(), cpus({1})));
  EXPECT_TRUE(loan.end(cpus({1})));
  EXPECT_TRUE(equal(loan.owners(), cpus({1, 3})));
}

TEST(AffinityLoan, NothingIsSetWhereOneCpuIsLeft) {
  AffinityLoan loan;
  loan.begin(cpus({2}));
  EXPECT_TRUE(!loan.narrow(cpus({2}), 2));
  EXPECT_TRUE(!loan.end(cpus({2})));
}

TEST(AffinityLoan, WhatCouldNotBeSetIsNotOurs) {
  AffinityLoan loan;
  loan.begin(cpus({0, 1}));
  EXPECT_TRUE(loan.narrow(cpus({0, 1}), 1));
  loan.refused();
  EXPECT_TRUE(!loan.lent() && !loan.end(cpus({0})));
  EXPECT_TRUE(equal(loan.owners(), cpus({0})));
}

}  // namespace
}  // namespace npu
