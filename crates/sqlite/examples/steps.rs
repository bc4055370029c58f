#![allow(clippy::all, clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, missing_docs)]
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use everturn_core::{Event, EventKind, WorkItem};
use everturn_provider::*;
use everturn_sqlite::*;
const LOCK: Duration = Duration::from_secs(30);
#[derive(Default)]
struct Memory { held: Mutex<HashMap<String, (u64, Stamp)>> }
struct Lent { m: Arc<Memory> , id: String, v: Option<(u64, Stamp)> }
impl Drop for Lent { fn drop(&mut self) { if let Some(v) = self.v.take() { self.m.held.lock().unwrap().insert(self.id.clone(), v); } } }
struct View(Arc<Memory>);
impl WarmView for View {
    fn lend(&self, instance: &str, e: u64, s: Stamp) -> Option<LentInstance> {
        let held = self.0.held.lock().unwrap().remove(instance)?;
        (held == (e, s)).then(|| LentInstance::new(Lent { m: self.0.clone(), id: instance.into(), v: Some(held) }))
    }
}
fn start(i: &str) -> WorkItem { WorkItem::StartOrchestration { instance: i.into(), orchestration: "o".into(), input: "x".into(), version: Some("1.0.0".into()), parent_instance: None, parent_id: None, parent_execution_id: None, execution_id: 1 } }
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let path = args[1].clone();
    let instances: u64 = args[2].parse().unwrap();
    let steps: u64 = args[3].parse().unwrap();
    let disp: usize = args.get(4).map_or(8, |v| v.parse().unwrap());
    let workers: usize = args.get(5).map_or(64, |v| v.parse().unwrap());
    let rt = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    rt.block_on(async move {
        let _ = std::fs::remove_file(&path); let _ = std::fs::remove_file(format!("{path}-wal"));
        let p = Arc::new(SqliteProvider::new(&if path == ":memory:" { "sqlite::memory:".into() } else { format!("sqlite:{path}") }, None).await.unwrap());
        let m = Arc::new(Memory::default());
        let done = Arc::new(AtomicU64::new(0)); let warmn = Arc::new(AtomicU64::new(0)); let turns = Arc::new(AtomicU64::new(0));
        let t0 = Instant::now(); let c0 = p.commit_count();
        let starts: Vec<_> = (0..instances).map(|i| { let p = p.clone(); tokio::spawn(async move { p.enqueue_for_orchestrator(start(&format!("i{i}")), None).await.unwrap() }) }).collect();
        for s in starts { s.await.unwrap(); }
        println!("starts: {:?} commits {}", t0.elapsed(), p.commit_count() - c0);
        let t0 = Instant::now(); let c0 = p.commit_count();
        let mut tasks = vec![];
        for _ in 0..disp { let (p, m, done, warmn, turns) = (p.clone(), m.clone(), done.clone(), warmn.clone(), turns.clone());
            tasks.push(tokio::spawn(async move { loop {
                let Some(t) = p.fetch_turn(LOCK, Duration::from_secs(30), None, Arc::new(View(m.clone()))).await.unwrap() else { continue };
                turns.fetch_add(1, Ordering::Relaxed);
                let FetchedTurn { item, lock_token, warm, stamp, .. } = t;
                let mut next = item.history.last().map_or(0, |e| e.event_id);
                if let Some(w) = warm { warmn.fetch_add(1, Ordering::Relaxed); let mut l: Lent = w.take().unwrap(); l.v = None; next = 2 * (stamp.unwrap().0 % 1_000_000); }
                let i = item.instance.clone();
                let mut delta = vec![]; let mut items = vec![]; let mut meta = ExecutionMetadata::default();
                if next == 0 { delta.push(Event::with_event_id(1, &i, 1, None, EventKind::OrchestrationStarted { name: "o".into(), version: "1.0.0".into(), input: "x".into(), parent_instance: None, parent_id: None, parent_execution_id: None, carry_forward_events: None, initial_custom_status: None }));
                    meta.orchestration_name = Some("o".into()); meta.orchestration_version = Some("1.0.0".into()); }
                else { delta.push(Event::with_event_id(next + 1, &i, 1, Some(next), EventKind::ActivityCompleted { result: "r".into() })); }
                let id = delta[0].event_id + 1; let step = id / 2; let fin = step > steps;
                if fin { delta.push(Event::with_event_id(id, &i, 1, None, EventKind::OrchestrationCompleted { output: "ok".into() })); meta.status = Some("Completed".into()); meta.output = Some("ok".into()); }
                else { delta.push(Event::with_event_id(id, &i, 1, None, EventKind::ActivityScheduled { name: "a".into(), input: "x".into(), session_id: None, tag: None }));
                    items.push(WorkItem::ActivityExecute { instance: i.clone(), execution_id: 1, id, name: "a".into(), input: "x".into(), session_id: None, tag: None }); }
                let st = Stamp((rand() / 1_000_000) * 1_000_000 + id / 2);
                let m2 = m.clone(); let i2 = i.clone();
                let ci: Option<CheckIn> = (!fin).then(|| -> CheckIn { Arc::new(move || { m2.held.lock().unwrap().insert(i2.clone(), (1, st)); }) });
                p.commit_turn(&TurnCommit { lock_token, execution_id: 1, history_delta: delta, worker_items: items, orchestrator_items: vec![], metadata: meta, cancelled_activities: vec![], base: stamp, stamp: st, check_in: ci }).await.unwrap();
                if fin { done.fetch_add(1, Ordering::Relaxed); }
            } })); }
        for _ in 0..workers { let p = p.clone(); tasks.push(tokio::spawn(async move { loop {
            let Some((item, token, _)) = p.fetch_work_item(LOCK, Duration::from_secs(30), None, &TagFilter::DefaultOnly).await.unwrap() else { continue };
            let WorkItem::ActivityExecute { instance, execution_id, id, .. } = item else { panic!() };
            p.ack_work_item(&token, Some(WorkItem::ActivityCompleted { instance, execution_id, id, result: "r".into() })).await.unwrap();
        } })); }
        while done.load(Ordering::Relaxed) < instances { tokio::time::sleep(Duration::from_millis(5)).await; }
        let e = t0.elapsed(); let n = instances * steps;
        println!("{n} steps in {e:?}: {:.0}/s, {:.1} us/step, commits/step {:.3}, warm {}/{}", n as f64 / e.as_secs_f64(), e.as_micros() as f64 / n as f64, (p.commit_count() - c0) as f64 / n as f64, warmn.load(Ordering::Relaxed), turns.load(Ordering::Relaxed));
        for t in tasks { t.abort(); }
        p.close().await;
    });
}
fn rand() -> u64 { SystemClock::new().random_u128() as u64 }
