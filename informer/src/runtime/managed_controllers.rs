//! Adds controllers to a manager.

use super::controller::Controller;
use super::controller_builder::ControllerBuilder;
use super::manager::Manager;
use super::request_key::RequestKey;
use crate::Error;
use crate::reconcile::Reconciler;

impl Manager {
    /// Returns a builder for a controller with the informers and metrics of this manager. The manager runs the
    /// controller once it is [complete](ControllerBuilder::complete).
    pub fn controller(&self, name: &str) -> ControllerBuilder<Self> {
        ControllerBuilder::of_manager(name, self)
    }
}

impl ControllerBuilder<Manager> {
    pub(super) fn of_manager(name: &str, manager: &Manager) -> Self {
        Self::with(manager.clone(), name, &manager.factory()).metrics(&manager.metrics())
    }
}

impl<R: RequestKey> ControllerBuilder<Manager, R> {
    /// Builds the controller without adding it to the manager, and returns both.
    pub(super) fn apart(self, reconciler: impl Reconciler<R>) -> Result<(Manager, Controller<R>), Error> {
        let manager = self.manager.clone();
        Ok((manager, self.build(reconciler)?))
    }

    /// Builds the controller and adds it to the manager, which runs it (controller-runtime's `Complete`).
    ///
    /// # Errors
    ///
    /// See [`build`](Self::build) and [`Manager::add`].
    pub fn complete(self, reconciler: impl Reconciler<R>) -> Result<(), Error> {
        let manager = self.manager.clone();
        manager.add(self.build(reconciler)?)
    }
}
