//! `Intake`: adds the keys affected by events to the queue of a controller.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::redelivery::{EventPanics, Redelivery};
use super::replays::{Replay, Replays};
use super::request_key::RequestKey;
use super::sharding::ShardKeys;
use crate::cache::{HandlerOptions, HandlerRegistration, SharedInformer};
use crate::handler::{AnyEvent, Event, HandlerFn, Predicate, ToKeys, enqueue};
use crate::queue::{AddOptions, LOW_PRIORITY, WorkQueue};
use crate::{Cacheable, CachedObject, Error, ObjectKey};

/// Number of objects after which a replay of gained keys yields to other tasks.
const YIELD_AFTER: usize = 32;

/// Function that starts a watch with the controller's intake.
pub(super) type Watch<R = ObjectKey> = Box<dyn FnOnce(&Intake<R>) -> Result<Registered, Error> + Send>;

/// Function that starts a source of keys other than a watch. The source runs until the token is cancelled.
pub(super) type Source<R = ObjectKey> = Box<dyn FnOnce(Intake<R>, CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// Function that selects events of any type.
pub(super) type Filter = Arc<dyn Fn(&AnyEvent<'_>) -> bool + Send + Sync>;

/// An active watch of a controller.
pub(super) struct Registered {
    /// Name of the watched resource, for messages.
    pub(super) name: String,
    pub(super) has_synced: Box<dyn Fn() -> bool + Send + Sync>,
    /// Returns the last failure of the informer, which may explain why it has not synced.
    pub(super) reason: Box<dyn Fn() -> Option<String> + Send + Sync>,
    pub(super) synced: BoxFuture<'static, Result<(), Error>>,
    pub(super) remove: Box<dyn FnOnce() + Send>,
}

/// The queue of a controller, and the settings that apply to events before their keys are added.
#[derive(Clone)]
pub(super) struct Intake<R: RequestKey> {
    pub(super) queue: WorkQueue<R>,
    pub(super) filters: Arc<[Filter]>,
    /// The keys that this replica owns, if the controller is sharded.
    pub(super) shard: Option<Arc<ShardKeys<R>>>,
    /// The watches, so that a trigger stream can enqueue all of their keys again; `None` without such streams.
    pub(super) replays: Option<Replays<R>>,
    /// Time for which each key is delayed after an event, so that further events are combined with it.
    pub(super) debounce: Duration,
    pub(super) panics: Arc<EventPanics>,
}

impl<R: RequestKey> Intake<R> {
    /// Adds a key to the queue, if this replica owns the key. `is_replay` is set for keys from an initial list or a
    /// resync, which get a low priority.
    pub(super) fn add(&self, key: R, is_replay: bool) {
        if self.shard.as_ref().is_some_and(|it| !it.takes(&key)) {
            return;
        }
        let is_low = is_replay && self.queue.has_priorities();
        let priority = if is_low { LOW_PRIORITY } else { 0 };
        self.queue.add_with(
            key,
            AddOptions {
                priority,
                after: self.debounce,
                ..AddOptions::default()
            },
        );
    }

    /// Adds the keys of all objects in the watched caches with a low priority.
    pub(super) fn add_all(&self) {
        if let Some(replays) = &self.replays {
            replays.run(|key| self.add(key, true));
        }
    }

    /// Starts a watch: adds the keys of an informer's events to the queue.
    pub(super) fn watch<K: Cacheable, T: ToKeys<K, R>, P: Predicate<K>>(
        &self,
        informer: &SharedInformer<K>,
        to_keys: T,
        predicate: P,
    ) -> Result<HandlerRegistration, Error> {
        let (intake, filters) = (self.clone(), Arc::clone(&self.filters));
        let watch = Arc::new((to_keys, predicate));
        let replayed = Arc::clone(&watch);
        // Only the user's functions can panic in this closure.
        let each_key = move |event: &Event<K>, watch: &(T, P), sink: &mut dyn FnMut(enqueue::Enqueued<R>)| {
            let (to_keys, predicate) = watch;
            let any = AnyEvent::from(event);
            if filters.iter().all(|filter| filter(&any)) && predicate.passes(event) {
                enqueue::each_key::<K, _, R>(to_keys, event, sink);
            }
        };
        let replayed_key = each_key.clone();
        let redelivery = Redelivery::new(&self.panics, move |event| {
            each_key(event, &watch, &mut |it| intake.add(it.key, it.is_replay));
        });
        let options = HandlerOptions {
            name: Some(format!("controller {}", self.panics.controller())),
            ..HandlerOptions::default()
        };
        let (delivering, again) = (Arc::clone(&redelivery), Arc::clone(&redelivery).run());
        let handler = HandlerFn::new(move |event: &Event<K>| delivering.deliver(event));
        let registration = informer.add_handler_beside(handler, options, again)?;
        let replay_object = Arc::new(move |object: &CachedObject<K>, push: &mut dyn FnMut(R)| {
            let event = Event::Added {
                object: object.clone(),
                is_in_initial_list: true,
            };
            redelivery.replay(&event, &mut |event| {
                replayed_key(event, &replayed, &mut |it| push(it.key))
            });
        });
        // The watch may end long before the controller, and must not keep the cache alive.
        let watched = informer.downgrade();
        let snapshot = Arc::new(move || watched.upgrade().map(|it| it.cache().snapshot()));
        if let Some(shard) = &self.shard {
            let parts = (Arc::clone(&replay_object), Arc::clone(&snapshot), registration.clone());
            shard.replay_by(Arc::new(move |mut push: Box<dyn FnMut(R) + Send>| {
                let (replay_object, snapshot, watched) = parts.clone();
                let replaying = async move {
                    if let Some(objects) = snapshot() {
                        for (number, object) in objects.iter().enumerate() {
                            replay_object(object, &mut *push);
                            if (number + 1).is_multiple_of(YIELD_AFTER) {
                                tokio::task::yield_now().await;
                            }
                        }
                    }
                    !watched.has_ended()
                };
                replaying.boxed()
            }));
        }
        if let Some(replays) = &self.replays {
            let watched = registration.clone();
            let replay: Replay<R> = Arc::new(move |push| {
                if let Some(objects) = snapshot() {
                    for object in objects.iter() {
                        replay_object(object, push);
                    }
                }
            });
            replays.add(replay, move || watched.has_ended());
        }
        Ok(registration)
    }
}

pub(super) fn registered<K: Cacheable>(informer: SharedInformer<K>, registration: HandlerRegistration) -> Registered {
    let (waiting, looking, failing) = (registration.clone(), registration.clone(), informer.clone());
    Registered {
        name: informer.name(),
        reason: Box::new(move || failing.reason()),
        has_synced: Box::new(move || looking.has_synced()),
        synced: Box::pin(async move { waiting.synced().await }),
        remove: Box::new(move || informer.remove_handler(&registration)),
    }
}
