// The feed of snapshots, asked for until it comes. fetch() is used as an EventSource
// does not tell a refusal from a lost connection.

const LEAST_SILENCE_S = 10;
const RETRY_S = 2;
const SIGN_IN = "sign in: open the URL that npu-dispatch serve printed, with its token";
const REFUSALS = {
  400: "the service does not know this address: start it with --allow-host",
  401: SIGN_IN,
  403: "you may not read this (403): ask whoever runs the service or its proxy",
  429: "too many requests come from your address (429)",
  503: "too many pages are open (503): close some",
};

// `heard(name, data)` gets each event, `changed(problem, lost)` why there are none: `lost`
// is true where nobody answers.
export async function follow(url, heard, changed) {
  for (;;) {
    let wait = RETRY_S;
    const stop = new AbortController();
    try {
      const answer = await fetch(url, { cache: "no-store", signal: stop.signal });
      if (answer.ok) {
        await read(answer.body.getReader(), stop, heard);
        changed("no connection", true);
      } else {
        wait = Number(answer.headers.get("Retry-After")) || 5;
        changed(REFUSALS[answer.status] ?? `the service answers ${answer.status}`, false);
      }
    } catch {
      if (stop.signal.aborted) changed("the service sends nothing", true);
      else changed("no connection", true);
    }
    await new Promise((done) => setTimeout(done, 1000 * wait));
  }
}

// Ends, too, when nothing has come for as long as four readings take.
async function read(reader, stop, heard) {
  const decoder = new TextDecoder();
  let [rest, silence] = ["", LEAST_SILENCE_S];
  for (;;) {
    const timer = setTimeout(() => stop.abort(), 1000 * silence);
    const { value, done } = await reader.read();
    clearTimeout(timer);
    if (done) return;
    const events = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const [, name, data] = event.match(/^event: (\w+)\ndata: (.*)$/s) ?? [];
      if (!name) continue;
      const value = JSON.parse(data);
      silence = Math.max(LEAST_SILENCE_S, 4 * (value.interval ?? 0));
      heard(name, value);
    }
  }
}
