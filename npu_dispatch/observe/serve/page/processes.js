// Who is shown, in which order, and which rank keeps the others waiting.

import { clock, percent } from "./units.js";
import { withoutKind } from "./verdict.js";

const WAITS = 0.25; // a rank waits for this share of the time, or more
const MOST_KILLED = 3; // that are shown
const SLOW = 1.5; // attention of a straggler: behind what stands still

// `several`: processes of several users are shown.
function title({ name, user, rank, pid }, several) {
  return [name || "process", ...(rank === "" ? [] : [`rank ${rank}`]), `pid ${pid}`,
    ...(several ? [`user ${user}`] : [])].join(", ");
}

function waits({ trend }) {
  return Object.values(trend.waits).reduce((sum, share) => sum + share, 0);
}

// The rank that waits least, where the others wait much, and more than twice as long.
export function straggler(processes) {
  const jobs = Map.groupBy(processes.filter((p) => p.rank !== "" && p.launched),
    (p) => `${p.job_id} ${p.world_size}`);
  for (const ranks of jobs.values()) {
    const [slow, ...others] = [...ranks].sort((a, b) => waits(a) - waits(b));
    if (!others.length) continue;
    const [least, theirs] = [waits(slow), waits(others[0])];
    if (theirs < WAITS || least > theirs / 2) continue;
    const text = `The other ranks wait for rank ${slow.rank}: their hosts wait ${
      percent(theirs)} of the time or more, its host ${percent(least)}.`;
    return { id: slow.id, text };
  }
  return null;
}

// Those that have launched something and those that were killed, who needs people first.
export function ones({ processes, killed }, slow) {
  const several = new Set([...processes, ...killed].map(({ user }) => user)).size > 1;
  const living = processes.filter((process) => process.launched).map((process) => {
    const late = process.id === slow?.id && process.attention > SLOW;
    const { verdict } = process;
    return {
      key: process.id, who: title(process, several), process, rank: process.rank,
      attention: late ? SLOW : process.attention,
      verdict: late ? { ...verdict, text: `${slow.text} ${withoutKind(verdict)}` } : verdict,
    };
  });
  const dead = killed.slice(0, MOST_KILLED).map((one) => ({
    key: `killed/${one.pid}`, who: title(one, several), rank: one.rank,
    // Somebody has started again since.
    attention: processes.some(({ began }) => began > one.tick) ? 5 : 0.5,
    verdict: {
      kind: "killed", at: one.at,
      text: `killed: it did not end by itself; found dead at ${clock(one.time)}.`,
      action: `\`npu-dispatch postmortem ${one.pid}\` says what it did; \`dmesg -T | grep -i kill\` says whether memory had run out.`,
    },
  }));
  return [...dead, ...living].sort((a, b) => a.attention - b.attention
    || Number(a.rank) - Number(b.rank));
}
