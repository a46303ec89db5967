// Command adapter serves Prometheus as custom and external metrics, for HorizontalPodAutoscalers.
//
// It is prometheus-adapter put together anew: all the work is done by that module's packages, but its own main program
// (last released for Kubernetes 1.30) does not compile against the libraries of the Kubernetes that is built here.
package main

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/logs"
	"k8s.io/klog/v2"

	basecmd "sigs.k8s.io/custom-metrics-apiserver/pkg/cmd"
	prom "sigs.k8s.io/prometheus-adapter/pkg/client"
	adaptercfg "sigs.k8s.io/prometheus-adapter/pkg/config"
	customprovider "sigs.k8s.io/prometheus-adapter/pkg/custom-provider"
	externalprovider "sigs.k8s.io/prometheus-adapter/pkg/external-provider"
	"sigs.k8s.io/prometheus-adapter/pkg/naming"
)

// withoutTimeout drops the timeout parameter, which prometheus-adapter 0.12 computes with the wrong sign and which
// Prometheus 3 refuses. The request's context still ends a query that takes too long.
type withoutTimeout struct{ prom.GenericAPIClient }

func (client withoutTimeout) Do(ctx context.Context, verb, endpoint string, query url.Values) (prom.APIResponse, error) {
	query.Del("timeout")
	return client.GenericAPIClient.Do(ctx, verb, endpoint, query)
}

func main() {
	logs.InitLogs()
	defer logs.FlushLogs()
	if err := run(); err != nil {
		klog.Fatal(err)
	}
}

func run() error {
	adapter := &basecmd.AdapterBase{Name: "prometheus-metrics-adapter"}
	promURL := adapter.Flags().String("prometheus-url", "http://127.0.0.1:9090", "where Prometheus answers")
	rulesFile := adapter.Flags().String("config", "", "metrics discovery configuration, in prometheus-adapter's format")
	relist := adapter.Flags().Duration("metrics-relist-interval", 10*time.Second, "how often series are listed anew")
	maxAge := adapter.Flags().Duration("metrics-max-age", time.Minute, "how long a series counts after its last sample")
	logs.AddFlags(adapter.Flags())
	if err := adapter.Flags().Parse(os.Args); err != nil {
		return err
	}

	base, err := url.Parse(*promURL)
	if err != nil {
		return err
	}
	client := prom.NewClientForAPI(withoutTimeout{prom.NewGenericAPIClient(http.DefaultClient, base, nil)}, http.MethodGet)
	rules, err := adaptercfg.FromFile(*rulesFile)
	if err != nil {
		return err
	}
	mapper, err := adapter.RESTMapper()
	if err != nil {
		return err
	}
	dynamic, err := adapter.DynamicClient()
	if err != nil {
		return err
	}
	ctx := genericapiserver.SetupSignalContext()

	namers, err := naming.NamersFromConfig(rules.Rules, mapper)
	if err != nil {
		return err
	}
	custom, customRunner := customprovider.NewPrometheusProvider(mapper, dynamic, client, namers, *relist, *maxAge)
	customRunner.RunUntil(ctx.Done())
	adapter.WithCustomMetrics(custom)

	externalNamers, err := naming.NamersFromConfig(rules.ExternalRules, mapper)
	if err != nil {
		return err
	}
	external, externalRunner := externalprovider.NewExternalPrometheusProvider(client, externalNamers, *relist, *maxAge)
	externalRunner.RunUntil(ctx.Done())
	adapter.WithExternalMetrics(external)

	return adapter.Run(ctx)
}
