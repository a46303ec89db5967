package main

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// They are on kube-scheduler's own /metrics.
var (
	asked = metrics.NewCounterVec(&metrics.CounterOpts{
		Name:           "rlscaler_plugin_pods_total",
		Help:           "Pods by how the suggestion server was asked: suggested, no_opinion, failed, breaker_open.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})
	seconds = metrics.NewHistogram(&metrics.HistogramOpts{
		Name:           "rlscaler_plugin_call_seconds",
		Help:           "Seconds that a pod waited for the suggestion server.",
		Buckets:        []float64{.0005, .001, .002, .003, .005, .01, .02, .05, .1, .2, .5, 1},
		StabilityLevel: metrics.ALPHA,
	})
	breakerOpen = metrics.NewGauge(&metrics.GaugeOpts{
		Name:           "rlscaler_plugin_breaker_open",
		Help:           "1 while the suggestion server is not asked because it failed.",
		StabilityLevel: metrics.ALPHA,
	})
)

func init() {
	legacyregistry.MustRegister(asked, seconds, breakerOpen)
}
