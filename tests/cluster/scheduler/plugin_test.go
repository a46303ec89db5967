package main

import (
	"context"
	"strings"
	"testing"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

func TestANoteIsCutBetweenCharactersAndKeepsItsEnd(t *testing.T) {
	const end = "; kube-scheduler took node-1"
	if got := note("why", end); got != "why"+end {
		t.Errorf("a short one is changed: %q", got)
	}
	if whole := strings.Repeat("a", mostNoteBytes-len(end)); note(whole, end) != whole+end {
		t.Error("one that just fits is cut")
	}
	for shift := range 4 {
		got := note(strings.Repeat("a", shift)+strings.Repeat("\U0001F600", 2000), end)
		if len(got) > 1024 || len(got) < 1024-4 || !utf8.ValidString(got) || !strings.HasSuffix(got, "..."+end) {
			t.Errorf("%d bytes, which end with %q", len(got), got[len(got)-40:])
		}
	}
}

func TestRequestsOfTheWholePodAreSent(t *testing.T) {
	requests := v1.ResourceList{v1.ResourceCPU: resource.MustParse("3")}
	pod := &v1.Pod{Spec: v1.PodSpec{Resources: &v1.ResourceRequirements{Requests: requests, Limits: requests}}}
	sent := reduced(pod).Spec.Resources
	if sent == nil || sent.Requests.Cpu().Value() != 3 || sent.Limits != nil {
		t.Errorf("sent %v", sent)
	}
	if reduced(&v1.Pod{}).Spec.Resources != nil {
		t.Error("a pod without them has some")
	}
}

func TestAPodWaitsForANamespaceThatIsNotKnownYet(t *testing.T) {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	known := make(chan struct{})
	close(known)
	p := &Plugin{namespaces: corelisters.NewNamespaceLister(indexer), policies: &scoringPolicies{known: known}}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "new", Name: "p"}}
	state := framework.NewCycleState()
	if _, status := p.PreFilter(context.Background(), state, pod, nil); status.Code() != fwk.Error {
		t.Errorf("before the namespace is known: %v", status)
	}
	limited := map[string]string{hardLatency[0]: "20"}
	if err := indexer.Add(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new", Annotations: limited}}); err != nil {
		t.Fatal(err)
	}
	if _, status := p.PreFilter(context.Background(), state, pod, nil); !status.IsSuccess() {
		t.Errorf("when it is known: %v", status)
	}
	if found, err := state.Read(limitKey); err != nil || found.(*limit).milliseconds != 20 {
		t.Errorf("its limit: %v, %v", found, err)
	}
	own := pod.DeepCopy()
	own.Namespace, own.Annotations = "unknown", limited
	if _, status := p.PreFilter(context.Background(), framework.NewCycleState(), own, nil); !status.IsSuccess() {
		t.Errorf("a pod that says its limit itself waits: %v", status)
	}
}
