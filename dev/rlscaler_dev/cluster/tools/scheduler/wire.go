package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// magic begins each question; its last character is the version of what follows.
const magic = "RLS1"

// largestAnswer bounds what is read: a byte for each of 100,000 nodes and a text.
const largestAnswer = 1 << 17

// errThisPod is that the server cannot read what it was asked about one pod, which says nothing of other pods.
var errThisPod = errors.New("the question is not understood")

// rowBytes is what is sent of a node: number, pods, CPU and memory.
const rowBytes = 4 + 4 + 8 + 8

// roster numbers the nodes, so that their names are sent once and not with each pod. Pods are scored one after the
// other, so it needs no lock.
type roster struct {
	// id tells this roster from those of other processes and from the ones before it.
	id      uint64
	numbers map[string]uint32
	names   []string
	// sent is how many names the server has.
	sent int
}

func newRoster() *roster {
	return &roster{id: rand.Uint64(), numbers: map[string]uint32{}}
}

// number of a node, a new one where it has none yet.
func (r *roster) number(name string) uint32 {
	found, ok := r.numbers[name]
	if !ok {
		found = uint32(len(r.names))
		r.numbers[name] = found
		r.names = append(r.names, name)
	}
	return found
}

// ask puts the question. A nil suggestion without an error means that the server has no opinion.
func (p *Plugin) ask(ctx context.Context, pod *v1.Pod, nodes []fwk.NodeInfo) (*suggestion, error) {
	every, err := p.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil, err
	}
	// Names of nodes that are gone are dropped when they are the most of it.
	if len(p.roster.names) > 2*len(every)+1024 {
		p.roster = newRoster()
	}
	about, err := json.Marshal(reduced(pod))
	if err != nil {
		return nil, err
	}
	rows := table(p.roster, nodes)
	status, answer, err := p.post(ctx, about, rows, len(nodes))
	if err == nil && status == http.StatusConflict {
		// The server began anew and has none of the names.
		p.roster.sent = 0
		status, answer, err = p.post(ctx, about, rows, len(nodes))
	}
	if err != nil {
		return nil, err
	}
	switch {
	case status == http.StatusNoContent:
		return nil, nil
	case status == http.StatusBadRequest:
		return nil, fmt.Errorf("%w: %s answers %d: %s", errThisPod, p.arguments.URL, status, answer[:min(len(answer), 300)])
	case status != http.StatusOK:
		return nil, fmt.Errorf("%s answers %d: %s", p.arguments.URL, status, answer[:min(len(answer), 300)])
	case len(answer) < len(nodes):
		return nil, fmt.Errorf("%s gives %d levels for %d nodes", p.arguments.URL, len(answer), len(nodes))
	}
	p.roster.sent = len(p.roster.names)
	// The roster is not written to before these nodes are scored, so its map is read in place of one made for each pod.
	found := &suggestion{
		numbers: p.roster.numbers,
		levels:  make([]uint8, len(p.roster.names)),
		why:     string(answer[len(nodes):]),
	}
	for at, info := range nodes {
		level := min(answer[at], uint8(fwk.MaxNodeScore))
		found.levels[binary.LittleEndian.Uint32(rows[at*rowBytes:])] = level
		if level == uint8(fwk.MaxNodeScore) {
			found.chosen = info.Node().Name
		}
	}
	return found, nil
}

// table has a row for each node: its number, and what kube-scheduler counts there, assumed pods included.
func table(r *roster, nodes []fwk.NodeInfo) []byte {
	rows := make([]byte, 0, rowBytes*len(nodes))
	for _, info := range nodes {
		requested := info.GetRequested()
		rows = binary.LittleEndian.AppendUint32(rows, r.number(info.Node().Name))
		rows = binary.LittleEndian.AppendUint32(rows, uint32(len(info.GetPods())))
		rows = binary.LittleEndian.AppendUint64(rows, uint64(requested.GetMilliCPU()))
		rows = binary.LittleEndian.AppendUint64(rows, uint64(requested.GetMemory()))
	}
	return rows
}

// post sends one question: magic, roster, names that the server has, lengths of the three parts, and the parts.
func (p *Plugin) post(ctx context.Context, about, rows []byte, count int) (int, []byte, error) {
	names := strings.Join(p.roster.names[p.roster.sent:], "\n")
	body := make([]byte, 0, 64+len(names)+len(about)+len(rows))
	body = append(body, magic...)
	body = binary.LittleEndian.AppendUint32(body, uint32(count))
	body = binary.LittleEndian.AppendUint64(body, p.roster.id)
	body = binary.LittleEndian.AppendUint32(body, uint32(p.roster.sent))
	body = binary.LittleEndian.AppendUint32(body, uint32(len(names)))
	body = binary.LittleEndian.AppendUint32(body, uint32(len(about)))
	body = append(body, rows...)
	body = append(body, names...)
	body = append(body, about...)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.arguments.URL+"/score", bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Content-Type", "application/octet-stream")
	if err := p.arguments.authorize(request); err != nil {
		return 0, nil, err
	}
	response, err := p.client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, largestAnswer))
	return response.StatusCode, answer, err
}

// probe asks whether the server is ready, within the same timeout.
func (p *Plugin) probe(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, p.arguments.timeout())
	defer cancel()
	request, err := http.NewRequestWithContext(bounded, http.MethodGet, p.arguments.URL+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := p.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, largestAnswer))
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %d", p.arguments.URL, response.StatusCode)
	}
	return nil
}

// reduced is the pod without what no policy looks at.
func reduced(pod *v1.Pod) *v1.Pod {
	annotations := map[string]string{}
	for name, text := range pod.Annotations {
		if strings.HasPrefix(name, "rlscaler.io/") || strings.HasPrefix(name, "latency") {
			annotations[name] = text
		}
	}
	containers := func(all []v1.Container) []v1.Container {
		kept := slices.Clone(all)
		for at, container := range all {
			kept[at] = v1.Container{
				Name:          container.Name,
				Resources:     v1.ResourceRequirements{Requests: container.Resources.Requests},
				RestartPolicy: container.RestartPolicy,
			}
		}
		return kept
	}
	var resources *v1.ResourceRequirements
	if pod.Spec.Resources != nil {
		resources = &v1.ResourceRequirements{Requests: pod.Spec.Resources.Requests}
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Annotations: annotations,
			Labels:            pod.Labels,
			CreationTimestamp: pod.CreationTimestamp, OwnerReferences: pod.OwnerReferences,
		},
		Spec: v1.PodSpec{
			SchedulerName:  pod.Spec.SchedulerName,
			Containers:     containers(pod.Spec.Containers),
			InitContainers: containers(pod.Spec.InitContainers),
			Overhead:       pod.Spec.Overhead,
			Resources:      resources,
		},
	}
}
