package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// Name of the plugin in a KubeSchedulerConfiguration.
const Name = "RlscalerSuggestions"

// mostNoteBytes is the longest text that an Event of events.k8s.io may have; the API server refuses longer ones.
const mostNoteBytes = 1024

const suggestionKey fwk.StateKey = Name + "/suggestion"

// Plugin scores the nodes of a pod by one question to the suggestion server, and enforces hard latencies by itself.
type Plugin struct {
	arguments  Arguments
	handle     fwk.Handle
	namespaces corelisters.NamespaceLister
	policies   *scoringPolicies
	client     *http.Client
	breaker    *breaker
	roster     *roster
	// lifetime ends with the process.
	lifetime context.Context
}

var (
	_ fwk.PreFilterPlugin   = &Plugin{}
	_ fwk.FilterPlugin      = &Plugin{}
	_ fwk.EnqueueExtensions = &Plugin{}
	_ fwk.PreScorePlugin    = &Plugin{}
	_ fwk.ScorePlugin       = &Plugin{}
	_ fwk.PostBindPlugin    = &Plugin{}
)

// suggestion is the answer for one pod.
type suggestion struct {
	// numbers of nodes by name, as the roster has them, and levels by number.
	numbers map[string]uint32
	levels  []uint8
	chosen  string
	why     string
}

// level of a node; 0 for one that was not asked about.
func (s *suggestion) level(name string) int64 {
	number, known := s.numbers[name]
	if !known || int(number) >= len(s.levels) {
		return 0
	}
	return int64(s.levels[number])
}

func (s *suggestion) Clone() fwk.StateData { return s }

// New makes the plugin of one profile.
func New(ctx context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	given, err := arguments(object)
	if err != nil {
		return nil, err
	}
	transport, err := given.transport()
	if err != nil {
		return nil, err
	}
	policies, err := watchPolicies(ctx, handle)
	if err != nil {
		return nil, err
	}
	p := &Plugin{
		policies:   policies,
		arguments:  given,
		handle:     handle,
		namespaces: handle.SharedInformerFactory().Core().V1().Namespaces().Lister(),
		client:     &http.Client{Transport: transport},
		roster:     newRoster(),
		lifetime:   ctx,
	}
	p.breaker = &breaker{pause: given.pause(), probe: p.probe}
	return p, nil
}

// Name of the plugin.
func (p *Plugin) Name() string { return Name }

// PreScore asks the server about all nodes that the pod fits. Without an answer the other score plugins decide.
func (p *Plugin) PreScore(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	if len(nodes) < 2 {
		return fwk.NewStatus(fwk.Skip)
	}
	if !p.breaker.closed() {
		asked.WithLabelValues("breaker_open").Inc()
		return fwk.NewStatus(fwk.Skip)
	}
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, p.arguments.timeout())
	defer cancel()
	found, err := p.ask(bounded, pod, nodes)
	seconds.Observe(time.Since(began).Seconds())
	switch {
	case err != nil && ctx.Err() != nil:
		return fwk.NewStatus(fwk.Skip)
	case errors.Is(err, errThisPod):
		// The server works, so the pods after this one are asked about.
		p.breaker.succeeded()
		asked.WithLabelValues("failed").Inc()
		klog.FromContext(ctx).Info("No suggestion: the server cannot read what it was asked about this pod",
			"pod", klog.KObj(pod), "err", err)
		return fwk.NewStatus(fwk.Skip)
	case err != nil:
		p.breaker.failed(p.lifetime)
		asked.WithLabelValues("failed").Inc()
		klog.FromContext(ctx).Info("No suggestion: the pod is placed without it, and the server is not asked for a while",
			"pod", klog.KObj(pod), "err", err)
		return fwk.NewStatus(fwk.Skip)
	case found == nil:
		p.breaker.succeeded()
		asked.WithLabelValues("no_opinion").Inc()
		return fwk.NewStatus(fwk.Skip)
	}
	p.breaker.succeeded()
	asked.WithLabelValues("suggested").Inc()
	state.Write(suggestionKey, found)
	return nil
}

// Score gives the level that the server gave.
func (p *Plugin) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	data, err := state.Read(suggestionKey)
	if err != nil {
		return 0, fwk.AsStatus(err)
	}
	return data.(*suggestion).level(info.Node().Name), nil
}

// ScoreExtensions says that levels are already from 0 to 100.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return nil }

// PostBind writes the Event, where that is asked for.
func (p *Plugin) PostBind(_ context.Context, state fwk.CycleState, pod *v1.Pod, node string) {
	data, err := state.Read(suggestionKey)
	if err != nil || !p.arguments.Events {
		return
	}
	found := data.(*suggestion)
	end := ""
	if node != found.chosen {
		end = fmt.Sprintf("; kube-scheduler took %s", node)
	}
	text := note(found.why, end)
	p.handle.EventRecorder().Eventf(pod, nil, v1.EventTypeNormal, "NodeSuggested", "Scheduling", "%s", text)
}

// note is the text of an Event: why, cut between two characters where both are too long, and the whole end.
func note(why, end string) string {
	const cut = "..."
	if len(why)+len(end) <= mostNoteBytes {
		return why + end
	}
	room := max(mostNoteBytes-len(end)-len(cut), 0)
	for room > 0 && !utf8.RuneStart(why[room]) {
		room--
	}
	return why[:room] + cut + end
}
