// Reads a trace back with Perfetto's trace processor and returns its totals: runs in the page of
// Perfetto's user interface, which has opened the trace. The result has the form of read_trace.py's.
//
// Knows nothing of Unspool. A trace for which the trace processor counts errors is refused.

async function query(sql) {
  const result = await app.trace.engine.query(sql);
  const rows = [];
  for (const row = result.iter({}); row.valid(); row.next()) {
    rows.push(result.columns().map((column) => {
      const value = row.get(column);
      return typeof value === "bigint" ? Number(value) : value;
    }));
  }
  return rows;
}

async function totals() {
  const errors = await query(
    "select name, value from stats where severity != 'info' and value != 0");
  if (errors.length) throw new Error("the trace processor complains: " + JSON.stringify(errors));

  const threads = {};
  for (const [tid, pid, name] of await query(
    "select tid, pid, thread.name from thread left join process using (upid)")) {
    threads[tid] = { name, pid, waits: {}, states: {}, samples: {}, while_running: 0 };
  }
  for (const [tid, waitingFor, ns] of await query(`
    select tid, extract_arg(slice.arg_set_id, 'debug.waiting_for') as waiting_for, sum(slice.dur)
    from slice join thread_track on track_id = thread_track.id join thread using (utid)
    where waiting_for is not null group by 1, 2`)) {
    threads[tid].waits[waitingFor] = ns;
  }
  const states = { Running: "running", R: "runnable", "R+": "runnable", S: "blocked", X: "ended" };
  for (const [tid, state, ns] of await query(
    "select tid, state, sum(dur) from thread_state join thread using (utid) group by 1, 2")) {
    const name = states[state] ?? state;
    threads[tid].states[name] = (threads[tid].states[name] ?? 0) + ns;
  }
  const functions = {};
  for (const [id, name, parent] of await query(`
    select callsite.id, coalesce(frame.deobfuscated_name, frame.name), parent_id
    from stack_profile_callsite callsite join stack_profile_frame frame on frame_id = frame.id
    order by depth`)) {
    functions[id] = parent === null ? name : functions[parent] + ";" + name;
  }
  for (const [tid, callsite, count, running] of await query(`
    select tid, callsite_id, count(*), sum(exists (select * from thread_state state
      where state.utid = sample.utid and state.state = 'Running'
        and sample.ts between state.ts and state.ts + state.dur))
    from perf_sample sample join thread using (utid) group by 1, 2`)) {
    const stack = functions[callsite];
    threads[tid].samples[stack] = (threads[tid].samples[stack] ?? 0) + count;
    threads[tid].while_running += running;
  }
  return {
    threads,
    processes: Object.fromEntries(await query("select pid, name from process where pid != 0")),
    flows: await query(`
      select source.tid, target.tid from flow
      join slice woken on woken.id = slice_in join slice waker on waker.id = slice_out
      join thread_track source_track on source_track.id = waker.track_id
      join thread source on source.utid = source_track.utid
      join thread_track target_track on target_track.id = woken.track_id
      join thread target on target.utid = target_track.utid`),
    wakes: await query(`
      select distinct waker.tid, woken.tid from thread_state
      join thread woken using (utid) join thread waker on waker.utid = waker_utid`),
    counters: (await query("select value from counter")).flat(),
    findings: (await query(`
      select slice.name from slice join track on track_id = track.id
      where track.name = 'findings'`)).flat(),
  };
}
