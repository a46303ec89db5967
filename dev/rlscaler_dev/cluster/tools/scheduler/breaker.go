package main

import (
	"context"
	"sync"
	"time"
)

// mostDoublings bounds the pause after failures in a row: 32 times the first one.
const mostDoublings = 5

// breaker keeps pods from waiting for a server that has failed. After a failure the server is not asked for a pause;
// then a probe, on which no pod waits, has to succeed before pods are asked about again.
type breaker struct {
	pause time.Duration
	probe func(context.Context) error

	mutex    sync.Mutex
	open     bool
	failures int
}

func (b *breaker) closed() bool {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return !b.open
}

func (b *breaker) succeeded() {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.failures = 0
}

// failed opens the breaker, and starts the probing that closes it. The probing ends with ctx at the latest.
func (b *breaker) failed(ctx context.Context) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.open {
		return
	}
	pause := b.pause << min(b.failures, mostDoublings)
	b.failures++
	b.open = true
	breakerOpen.Set(1)
	go b.probing(ctx, pause)
}

func (b *breaker) probing(ctx context.Context, pause time.Duration) {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if b.probe(ctx) == nil {
			b.mutex.Lock()
			b.open = false
			breakerOpen.Set(0)
			b.mutex.Unlock()
			return
		}
	}
}
