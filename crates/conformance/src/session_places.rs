//! No session is claimed that the runtime has no place for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use everturn_provider::TagFilter;
use everturn_provider::store::{Feature, FetchedWork, SessionPlace, SessionPlaces, SessionRoom, WorkFetch};

use crate::harness::{ActivityId, CaseHarness, LOCK, secs, session};
use crate::items::{activity, activity_in_session, activity_of};
use crate::waiting::keeps_waiting;

cases! { $ session_places as session_places_cases:
    without_a_place_no_session_is_claimed,
    plain_activities_need_no_place,
    a_runtime_without_free_places_gets_the_sessions_that_it_serves,
    a_place_is_free_again_when_the_activity_is_dropped,
    a_fetch_that_is_dropped_releases_its_place,
    every_activity_of_a_batch_has_its_place,
    a_long_session_of_another_owner_hides_no_other_session,
    the_oldest_activity_comes_first_however_many_sessions_there_are,
    activities_of_a_session_with_other_tags_are_passed_over,
}

const LEASE: Duration = secs(60);

/// Places for so many sessions.
#[derive(Clone)]
struct CountedPlaces {
    places: usize,
    taken: Arc<Mutex<BTreeMap<String, usize>>>,
}

struct TakenPlace {
    session_id: String,
    taken: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl CountedPlaces {
    fn new(places: usize) -> Self {
        Self { places, taken: Arc::default() }
    }

    /// The sessions that have places, and how many activities of each.
    fn taken(&self) -> Vec<(String, usize)> {
        self.taken.lock().unwrap().clone().into_iter().collect()
    }

    fn fetch(&self, owner: &str, wait: Duration) -> WorkFetch {
        let fetch = WorkFetch::new(LOCK, wait).with_session(session(owner, LEASE));
        fetch.with_session_places(Arc::new(self.clone()))
    }

    async fn next_work(&self, h: &CaseHarness, owner: &str) -> Option<FetchedWork> {
        h.fetch_one_work(&self.fetch(owner, Duration::ZERO)).await.unwrap()
    }
}

impl SessionPlaces for CountedPlaces {
    fn room(&self) -> SessionRoom {
        let taken = self.taken.lock().unwrap();
        if taken.len() < self.places {
            SessionRoom::Any
        } else {
            SessionRoom::Only(taken.keys().cloned().collect())
        }
    }

    fn reserve(&self, session_id: &str) -> Option<SessionPlace> {
        let mut taken = self.taken.lock().unwrap();
        if taken.len() >= self.places && !taken.contains_key(session_id) {
            return None;
        }
        *taken.entry(session_id.to_owned()).or_default() += 1;
        let taken = Arc::clone(&self.taken);
        Some(SessionPlace::new(TakenPlace { session_id: session_id.to_owned(), taken }))
    }
}

impl Drop for TakenPlace {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap();
        let activities = taken.get_mut(&self.session_id).expect("the place is taken");
        *activities -= 1;
        if *activities == 0 {
            taken.remove(&self.session_id);
        }
    }
}

fn asks_for_places(h: &CaseHarness) -> bool {
    h.supports(Feature::SessionPlaces)
}

async fn without_a_place_no_session_is_claimed(h: CaseHarness) {
    if !asks_for_places(&h) {
        return;
    }
    h.queue(activity_in_session("i", 1, "s")).await;
    assert!(CountedPlaces::new(0).next_work(&h, "a").await.is_none());
    let work = h.next_work_as("b", LEASE).await.expect("the session is free");
    assert_eq!((work.activity_id(), work.attempt_count), (1, 1), "no other fetch locked it");
    assert!(work.session_place.is_none(), "a fetch without places takes none");
}

async fn plain_activities_need_no_place(h: CaseHarness) {
    if !asks_for_places(&h) {
        return;
    }
    h.queue(activity_in_session("i", 1, "s")).await;
    h.queue(activity("i", 2)).await;
    let places = CountedPlaces::new(0);
    let work = places.next_work(&h, "a").await.expect("an activity without a session");
    assert_eq!(work.activity_id(), 2);
    assert!(work.session_place.is_none());
}

async fn a_runtime_without_free_places_gets_the_sessions_that_it_serves(h: CaseHarness) {
    if !asks_for_places(&h) {
        return;
    }
    for (id, session_id) in [(1, "s"), (2, "t"), (3, "s"), (4, "s")] {
        h.queue(activity_in_session("i", id, session_id)).await;
    }
    let places = CountedPlaces::new(1);
    let mut held = Vec::new();
    for id in [1, 3, 4] {
        let work = places.next_work(&h, "a").await.expect("the session has a place");
        assert_eq!(work.activity_id(), id);
        held.push(work);
    }
    assert_eq!(places.taken(), [("s".to_owned(), 3)]);
    assert!(places.next_work(&h, "a").await.is_none());
    assert_eq!(h.next_work_as("b", LEASE).await.expect("it is free for others").activity_id(), 2);
}

async fn a_place_is_free_again_when_the_activity_is_dropped(h: CaseHarness) {
    if !asks_for_places(&h) {
        return;
    }
    h.queue(activity_in_session("i", 1, "s")).await;
    h.queue(activity_in_session("i", 2, "t")).await;
    let places = CountedPlaces::new(1);
    let work = places.next_work(&h, "a").await.unwrap();
    h.end_work(&work.lock_token, None).await.unwrap();
    assert!(places.next_work(&h, "a").await.is_none(), "the caller still has the place");
    drop(work);
    assert_eq!(places.next_work(&h, "a").await.expect("there is a place again").activity_id(), 2);
}

async fn a_fetch_that_is_dropped_releases_its_place(h: CaseHarness) {
    if !asks_for_places(&h) || !h.factory().fetch_waits() {
        return;
    }
    let places = CountedPlaces::new(1);
    let waiting = places.fetch("a", secs(40));
    let mut fetch = Box::pin(h.fetch_one_work(&waiting));
    keeps_waiting(&mut fetch).await;
    h.queue(activity_in_session("i", 1, "s")).await;
    drop(fetch);
    let waiting = places.fetch("a", secs(20));
    let work = h.fetch_one_work(&waiting).await.unwrap().expect("the activity came back");
    assert_eq!((work.activity_id(), work.attempt_count), (1, 1));
    assert_eq!(places.taken(), [("s".to_owned(), 1)]);
}

async fn every_activity_of_a_batch_has_its_place(h: CaseHarness) {
    if !asks_for_places(&h) {
        return;
    }
    for id in 1..=6 {
        h.queue(activity_in_session("i", id, &format!("s{id}"))).await;
    }
    let places = CountedPlaces::new(4);
    let mut held = Vec::new();
    loop {
        let fetch = places.fetch("a", Duration::ZERO).with_work_max(3);
        let work = h.fetch_work(&fetch).await.unwrap();
        if work.is_empty() {
            break;
        }
        held.extend(work);
    }
    assert_eq!((held.len(), places.taken().len()), (4, 4));
    assert!(held.iter().all(|work| work.session_place.is_some()));
    assert_eq!(h.next_work_as("b", LEASE).await.expect("the fifth is free").activity_id(), 5);
}

async fn a_long_session_of_another_owner_hides_no_other_session(h: CaseHarness) {
    h.queue(activity_in_session("i", 0, "m")).await;
    h.next_work_as("a", LEASE).await.unwrap();
    for id in 1..=100 {
        h.queue(activity_in_session("i", id, "m")).await;
    }
    // Names before and after the long one.
    for (id, session_id) in [(101, "b"), (102, "z"), (103, "b"), (104, "m")] {
        h.queue(activity_in_session("i", id, session_id)).await;
    }
    h.queue(activity("i", 105)).await;
    for id in [101, 102, 103, 105] {
        assert_eq!(h.next_work_as("b", LEASE).await.unwrap().activity_id(), id);
    }
    assert!(h.next_work_as("b", LEASE).await.is_none());
    assert_eq!(h.next_work_as("a", LEASE).await.unwrap().activity_id(), 1);
}

async fn the_oldest_activity_comes_first_however_many_sessions_there_are(h: CaseHarness) {
    for id in 0..120 {
        // Names in another order than the activities.
        h.queue(activity_in_session("i", id, &format!("s{}", (id * 37) % 60))).await;
    }
    for id in 0..120 {
        assert_eq!(h.next_work_as("a", LEASE).await.unwrap().activity_id(), id);
    }
    assert!(h.next_work_as("a", LEASE).await.is_none());
}

async fn activities_of_a_session_with_other_tags_are_passed_over(h: CaseHarness) {
    for id in 0..50 {
        h.queue(activity_of("i", id, Some("s"), Some("gpu"))).await;
    }
    h.queue(activity_in_session("i", 50, "s")).await;
    h.queue(activity_in_session("i", 51, "t")).await;
    let fetch = WorkFetch::new(LOCK, Duration::ZERO).with_session(session("a", LEASE));
    for id in [50, 51] {
        assert_eq!(h.fetch_one_work(&fetch).await.unwrap().expect("an untagged one").activity_id(), id);
    }
    assert!(h.fetch_one_work(&fetch).await.unwrap().is_none());
    let any = fetch.with_tags(TagFilter::Any);
    assert_eq!(h.fetch_one_work(&any).await.unwrap().expect("the oldest of all").activity_id(), 0);
}
