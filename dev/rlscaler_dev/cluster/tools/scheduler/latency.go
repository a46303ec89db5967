package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// nodeLatency is the annotation of a node with its round trip to the users, in milliseconds.
const nodeLatency = "rlscaler.io/latency-ms"

// latencyUntil is the annotation of a node with the time after which its latency is not believed any more.
const latencyUntil = "rlscaler.io/latency-until"

// hardLatency are the annotations of a pod, or of its namespace, with the latency above which nodes are refused.
var hardLatency = []string{"rlscaler.io/latency-hard-ms", "latencyHardConstraint"}

const limitKey fwk.StateKey = Name + "/limit"

// limit is a hard latency, and who asked for it.
type limit struct {
	milliseconds float64
	by           string
}

func (l *limit) Clone() fwk.StateData { return l }

// number reads an annotation: a finite number of 0 or more, as the suggestion server reads it.
func number(text string) (float64, bool) {
	text = strings.TrimSpace(text)
	if strings.ContainsAny(text, "xX_") {
		return 0, false
	}
	value, err := strconv.ParseFloat(text, 64)
	return value, err == nil && value >= 0 && !math.IsInf(value, 0) && !math.IsNaN(value)
}

// hard is the pod's limit, nil without one: by its annotation, that of its namespace, or the object that selects it. An
// annotation that is no number is no limit; the suggestion server says so. A namespace that is not known yet is an error:
// its pods wait, since it may have a limit.
func (p *Plugin) hard(ctx context.Context, pod *v1.Pod) (*limit, error) {
	if text, ok := first(pod.Annotations, hardLatency); ok {
		return annotated(text, "annotation of the pod"), nil
	}
	namespace, err := p.namespaces.Get(pod.Namespace)
	if err != nil {
		return nil, fmt.Errorf("the hard latency of the pod's namespace cannot be read yet: %w", err)
	}
	if text, ok := first(namespace.Annotations, hardLatency); ok {
		return annotated(text, "annotation of the namespace"), nil
	}
	object, err := p.policies.of(ctx, namespace.Labels, pod)
	if err != nil || object == nil || object.hard == nil {
		return nil, err
	}
	return &limit{*object.hard, "NodeScoringPolicy " + object.name}, nil
}

func annotated(text, by string) *limit {
	value, ok := number(text)
	if !ok {
		return nil
	}
	return &limit{value, by}
}

func first(annotations map[string]string, names []string) (string, bool) {
	for _, name := range names {
		if text, ok := annotations[name]; ok {
			return text, true
		}
	}
	return "", false
}

// PreFilter reads the pod's limit once, and skips Filter for pods without one. After an error kube-scheduler tries the
// pod again with its backoff, whatever happens in the cluster.
func (p *Plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	found, err := p.hard(ctx, pod)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	if found == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	state.Write(limitKey, found)
	return nil, nil
}

// PreFilterExtensions says that the limit does not depend on other pods.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// measured is the latency of a node; without an end it holds for ever, and an end that cannot be read has passed.
func measured(annotations map[string]string, now time.Time) (float64, bool) {
	if text, ok := annotations[latencyUntil]; ok {
		until, err := time.Parse(time.RFC3339, text)
		if err != nil || until.Before(now) {
			return 0, false
		}
	}
	return number(annotations[nodeLatency])
}

// Filter refuses a node that was measured above the limit. It needs no server. A node that was not measured is kept.
func (p *Plugin) Filter(_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	data, err := state.Read(limitKey)
	if err != nil {
		return nil
	}
	wanted := data.(*limit)
	latency, ok := measured(info.Node().Annotations, time.Now())
	if !ok || latency <= wanted.milliseconds {
		return nil
	}
	p.policies.refused.Store(true)
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable,
		fmt.Sprintf("latency %g ms is above the hard limit %g ms (%s)", latency, wanted.milliseconds, wanted.by))
}

// EventsToRegister names what may bring a node below the limit: a new node, and a new measurement.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAnnotation}},
	}, nil
}
