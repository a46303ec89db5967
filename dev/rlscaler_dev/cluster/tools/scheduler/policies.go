package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

var policyResource = schema.GroupVersionResource{Group: "rlscaler.io", Version: "v1alpha1", Resource: "nodescoringpolicies"}

// knownSeconds is the longest that a pod waits for the first list of NodeScoringPolicies.
const knownSeconds = time.Second

var errNotKnown = errors.New("NodeScoringPolicies were not listed yet")

// scoringPolicy is the part of a NodeScoringPolicy that the plugin enforces.
type scoringPolicy struct {
	name       string
	priority   int64
	namespaces labels.Selector
	pods       labels.Selector
	// hard is nil where it says nothing of a hard latency.
	hard *float64
}

// scoringPolicies are those of the cluster, in the order in which they count.
type scoringPolicies struct {
	ordered atomic.Pointer[[]scoringPolicy]
	// known is closed when they were listed, or when it is clear that the cluster does not have the kind.
	known chan struct{}
	once  sync.Once
	// refused says that a pod was refused by a limit, so that a change may help one.
	refused atomic.Bool
}

// watchPolicies follows the NodeScoringPolicies until ctx ends. A cluster need not have the kind.
func watchPolicies(ctx context.Context, handle fwk.Handle) (*scoringPolicies, error) {
	client, err := dynamic.NewForConfig(handle.KubeConfig())
	if err != nil {
		return nil, err
	}
	informer := dynamicinformer.NewFilteredDynamicInformer(client, policyResource, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	held := &scoringPolicies{known: make(chan struct{})}
	err = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, reflector *cache.Reflector, err error) {
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			held.once.Do(func() {
				klog.FromContext(ctx).Info("No NodeScoringPolicies act", "why", err)
				close(held.known)
			})
			return
		}
		cache.DefaultWatchErrorHandler(ctx, reflector, err)
	})
	if err != nil {
		return nil, err
	}
	changed := func() {
		held.rebuild(ctx, informer.GetStore())
		held.retry(ctx, handle)
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		UpdateFunc: func(any, any) { changed() },
		DeleteFunc: func(any) { changed() },
	})
	if err != nil {
		return nil, err
	}
	go informer.RunWithContext(ctx)
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			held.once.Do(func() { close(held.known) })
		}
	}()
	return held, nil
}

// rebuild takes over what the API server has. An object that cannot be read does not act, as in the suggestion server.
func (s *scoringPolicies) rebuild(ctx context.Context, store cache.Store) {
	found := []scoringPolicy{}
	for _, item := range store.List() {
		object, ok := item.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		one, err := readPolicy(object)
		if err != nil {
			klog.FromContext(ctx).Info("A NodeScoringPolicy does not act", "name", object.GetName(), "err", err)
			continue
		}
		found = append(found, one)
	}
	slices.SortFunc(found, func(a, b scoringPolicy) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.name, b.name))
	})
	s.ordered.Store(&found)
}

func readPolicy(object *unstructured.Unstructured) (scoringPolicy, error) {
	var read struct {
		Spec struct {
			NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector"`
			PodSelector       *metav1.LabelSelector `json:"podSelector"`
			Priority          int64                 `json:"priority"`
			Hard              *float64              `json:"latencyHardConstraintMilliseconds"`
		} `json:"spec"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &read); err != nil {
		return scoringPolicy{}, err
	}
	namespaces, err := selector(read.Spec.NamespaceSelector)
	if err != nil {
		return scoringPolicy{}, err
	}
	pods, err := selector(read.Spec.PodSelector)
	return scoringPolicy{object.GetName(), read.Spec.Priority, namespaces, pods, read.Spec.Hard}, err
}

// selector selects everything where none is given.
func selector(given *metav1.LabelSelector) (labels.Selector, error) {
	if given == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(given)
}

// of is the object that acts for a pod, or nil. It waits a moment for the first list, and fails without one.
func (s *scoringPolicies) of(ctx context.Context, namespace map[string]string, pod *v1.Pod) (*scoringPolicy, error) {
	select {
	case <-s.known:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(knownSeconds):
		return nil, errNotKnown
	}
	ordered := s.ordered.Load()
	if ordered == nil {
		return nil, nil
	}
	for at := range *ordered {
		one := &(*ordered)[at]
		if one.namespaces.Matches(labels.Set(namespace)) && one.pods.Matches(labels.Set(pod.Labels)) {
			return one, nil
		}
	}
	return nil, nil
}

// retry has pods without a node tried again at once, where a limit has refused one before.
func (s *scoringPolicies) retry(ctx context.Context, handle fwk.Handle) {
	if !s.refused.Load() {
		return
	}
	pods, err := handle.SharedInformerFactory().Core().V1().Pods().Lister().List(labels.Everything())
	if err != nil {
		return
	}
	waiting := map[string]*v1.Pod{}
	for _, pod := range pods {
		if pod.Spec.NodeName == "" {
			waiting[pod.Namespace+"/"+pod.Name] = pod
		}
	}
	handle.Activate(klog.FromContext(ctx), waiting)
}
