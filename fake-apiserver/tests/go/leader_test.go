package goclients

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Of two candidates one leads; when it goes, the other one does.
func TestLeaderElection(t *testing.T) {
	c := newCluster(t)
	leaders := make(chan string, 10)
	first, firstEnded := campaign(t, c, "first", leaders)
	next(t, c, leaders, "first")
	second, secondEnded := campaign(t, c, "second", leaders)

	// The second one asks, and is not given it.
	asked := c.wire.count("GET", "/leases/lock", "")
	c.eventually(t, "both ask for the lock", func() bool { return c.wire.count("GET", "/leases/lock", "") > asked+3 })
	equal(t, "leaders", len(leaders), 0)

	first()
	<-firstEnded
	next(t, c, leaders, "second")
	lease, err := c.client.CoordinationV1().Leases(c.namespace).Get(c.ctx, "lock", metav1.GetOptions{})
	must(t, err)
	equal(t, "holder", *lease.Spec.HolderIdentity, "second")
	equal(t, "transitions", *lease.Spec.LeaseTransitions, 1)
	second()
	<-secondEnded
}

// campaign runs a candidate until it is told to stop; the channel is closed when it has released the lock.
func campaign(t *testing.T, c *cluster, name string, leaders chan<- string) (context.CancelFunc, <-chan struct{}) {
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, c.namespace, "lock",
		c.client.CoreV1(), c.client.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: name})
	must(t, err)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, Name: name, ReleaseOnCancel: true,
		LeaseDuration: 20 * time.Second, RenewDeadline: 15 * time.Second, RetryPeriod: 50 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { leaders <- name },
			OnStoppedLeading: func() {},
		},
	})
	must(t, err)
	ctx, cancel := context.WithCancel(c.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		elector.Run(ctx)
	}()
	return cancel, ended
}
