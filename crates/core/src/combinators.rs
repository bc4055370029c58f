//! Waiting for several futures at once, in an order that replays.
//!
//! Every poll by the engine polls all children in argument order and uses no waker. So any number of children works, and
//! history alone decides the winner of a race.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use crate::context::OrchestrationContext;

/// The winner of a race between two futures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Either2<A, B> {
    /// The first future won.
    First(A),
    /// The second future won.
    Second(B),
}

impl<A, B> Either2<A, B> {
    /// Whether the first future won.
    pub fn is_first(&self) -> bool {
        matches!(self, Self::First(_))
    }

    /// Whether the second future won.
    pub fn is_second(&self) -> bool {
        matches!(self, Self::Second(_))
    }

    /// Which future won: 0 or 1.
    pub fn index(&self) -> usize {
        match self {
            Self::First(_) => 0,
            Self::Second(_) => 1,
        }
    }
}

impl<T> Either2<T, T> {
    /// Which future won, and its value.
    pub fn into_tuple(self) -> (usize, T) {
        match self {
            Self::First(value) => (0, value),
            Self::Second(value) => (1, value),
        }
    }
}

/// The winner of a race between three futures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Either3<A, B, C> {
    /// The first future won.
    First(A),
    /// The second future won.
    Second(B),
    /// The third future won.
    Third(C),
}

impl<A, B, C> Either3<A, B, C> {
    /// Which future won: 0, 1 or 2.
    pub fn index(&self) -> usize {
        match self {
            Self::First(_) => 0,
            Self::Second(_) => 1,
            Self::Third(_) => 2,
        }
    }
}

impl<T> Either3<T, T, T> {
    /// Which future won, and its value.
    pub fn into_tuple(self) -> (usize, T) {
        match self {
            Self::First(value) => (0, value),
            Self::Second(value) => (1, value),
            Self::Third(value) => (2, value),
        }
    }
}

/// A child of a join: pending, done, or its value taken out.
enum Child<F: Future> {
    Pending(F),
    Done(F::Output),
    Taken,
}

impl<F: Future> Child<Pin<Box<F>>> {
    fn boxed(future: F) -> Self {
        Self::Pending(Box::pin(future))
    }

    /// Polls the child if it is pending. Returns whether it is done.
    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        if let Self::Pending(future) = self
            && let Poll::Ready(value) = future.as_mut().poll(cx)
        {
            *self = Self::Done(value);
        }
        !matches!(self, Self::Pending(_))
    }

    fn take(&mut self) -> Option<F::Output> {
        match std::mem::replace(self, Self::Taken) {
            Self::Done(value) => Some(value),
            Self::Pending(_) | Self::Taken => None,
        }
    }
}

impl OrchestrationContext {
    /// Waits for all futures; results come in input order.
    ///
    /// ```
    /// use everturn_core::OrchestrationContext;
    ///
    /// async fn greet_all(ctx: OrchestrationContext, names: String) -> Result<String, String> {
    ///     let calls = names.lines().map(|name| ctx.schedule_activity("Greet", name)).collect();
    ///     let greetings: Result<Vec<String>, String> = ctx.join(calls).await.into_iter().collect();
    ///     Ok(greetings?.join(", "))
    /// }
    /// ```
    pub async fn join<T, F>(&self, futures: Vec<F>) -> Vec<T>
    where
        F: Future<Output = T>,
    {
        let mut pending: Vec<(usize, Pin<Box<F>>)> = futures.into_iter().map(Box::pin).enumerate().collect();
        let mut values: Vec<Option<T>> = pending.iter().map(|_| None).collect();
        poll_fn(|cx| {
            // Every child that is pending is polled, also after one was found pending.
            pending.retain_mut(|(place, child)| match child.as_mut().poll(cx) {
                Poll::Ready(value) => {
                    if let Some(empty) = values.get_mut(*place) {
                        *empty = Some(value);
                    }
                    false
                }
                Poll::Pending => true,
            });
            if !pending.is_empty() {
                return Poll::Pending;
            }
            Poll::Ready(std::mem::take(&mut values).into_iter().flatten().collect())
        })
        .await
    }

    /// Waits for both futures.
    ///
    /// ```
    /// use everturn_core::OrchestrationContext;
    ///
    /// async fn trip(ctx: OrchestrationContext, to: String) -> Result<String, String> {
    ///     let flight = ctx.schedule_activity("BookFlight", to.clone());
    ///     let hotel = ctx.schedule_sub_orchestration("BookHotel", to);
    ///     let (flight, hotel) = ctx.join2(flight, hotel).await;
    ///     Ok(format!("{} {}", flight?, hotel?))
    /// }
    /// ```
    pub async fn join2<T1, T2, F1, F2>(&self, f1: F1, f2: F2) -> (T1, T2)
    where
        F1: Future<Output = T1>,
        F2: Future<Output = T2>,
    {
        let (mut first, mut second) = (Child::boxed(f1), Child::boxed(f2));
        poll_fn(|cx| {
            let done = [first.poll(cx), second.poll(cx)];
            if done.contains(&false) {
                return Poll::Pending;
            }
            match (first.take(), second.take()) {
                (Some(first), Some(second)) => Poll::Ready((first, second)),
                _ => Poll::Pending,
            }
        })
        .await
    }

    /// Waits for all three futures.
    pub async fn join3<T1, T2, T3, F1, F2, F3>(&self, f1: F1, f2: F2, f3: F3) -> (T1, T2, T3)
    where
        F1: Future<Output = T1>,
        F2: Future<Output = T2>,
        F3: Future<Output = T3>,
    {
        let (mut first, mut second, mut third) = (Child::boxed(f1), Child::boxed(f2), Child::boxed(f3));
        poll_fn(|cx| {
            let done = [first.poll(cx), second.poll(cx), third.poll(cx)];
            if done.contains(&false) {
                return Poll::Pending;
            }
            match (first.take(), second.take(), third.take()) {
                (Some(first), Some(second), Some(third)) => Poll::Ready((first, second, third)),
                _ => Poll::Pending,
            }
        })
        .await
    }

    /// Races two futures; if both are ready, the first wins. The loser is dropped, which cancels its work.
    ///
    /// ```
    /// use std::time::Duration;
    /// use everturn_core::{Either2, OrchestrationContext};
    ///
    /// async fn quote(ctx: OrchestrationContext, item: String) -> Result<String, String> {
    ///     let price = ctx.schedule_activity("AskSupplier", item);
    ///     let deadline = ctx.schedule_timer(Duration::from_secs(60));
    ///     match ctx.select2(price, deadline).await {
    ///         Either2::First(price) => price,
    ///         Either2::Second(()) => Err("the supplier did not answer".to_owned()),
    ///     }
    /// }
    /// ```
    pub async fn select2<T1, T2, F1, F2>(&self, f1: F1, f2: F2) -> Either2<T1, T2>
    where
        F1: Future<Output = T1>,
        F2: Future<Output = T2>,
    {
        let (mut f1, mut f2) = (pin!(f1), pin!(f2));
        poll_fn(|cx| {
            if let Poll::Ready(value) = f1.as_mut().poll(cx) {
                return Poll::Ready(Either2::First(value));
            }
            f2.as_mut().poll(cx).map(Either2::Second)
        })
        .await
    }

    /// Races three futures; of those that are ready, the first wins. The losers are dropped, which cancels their work.
    ///
    /// ```
    /// use std::time::Duration;
    /// use everturn_core::{Either3, OrchestrationContext};
    ///
    /// async fn decision(ctx: OrchestrationContext, _: String) -> Result<String, String> {
    ///     let (yes, no) = (ctx.schedule_wait("Approved"), ctx.schedule_wait("Rejected"));
    ///     match ctx.select3(yes, no, ctx.schedule_timer(Duration::from_secs(3600))).await {
    ///         Either3::First(by) => Ok(format!("approved by {by}")),
    ///         Either3::Second(by) => Err(format!("rejected by {by}")),
    ///         Either3::Third(()) => Err("no decision within an hour".to_owned()),
    ///     }
    /// }
    /// ```
    pub async fn select3<T1, T2, T3, F1, F2, F3>(&self, f1: F1, f2: F2, f3: F3) -> Either3<T1, T2, T3>
    where
        F1: Future<Output = T1>,
        F2: Future<Output = T2>,
        F3: Future<Output = T3>,
    {
        let (mut f1, mut f2, mut f3) = (pin!(f1), pin!(f2), pin!(f3));
        poll_fn(|cx| {
            if let Poll::Ready(value) = f1.as_mut().poll(cx) {
                return Poll::Ready(Either3::First(value));
            }
            if let Poll::Ready(value) = f2.as_mut().poll(cx) {
                return Poll::Ready(Either3::Second(value));
            }
            f3.as_mut().poll(cx).map(Either3::Third)
        })
        .await
    }
}
