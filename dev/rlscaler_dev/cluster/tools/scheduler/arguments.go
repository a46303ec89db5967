package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// Arguments is what a profile's pluginConfig says.
type Arguments struct {
	// URL of the suggestion server, such as http://127.0.0.1:8899, or https where it has a certificate.
	URL string `json:"url"`
	// TimeoutMilliseconds is the longest that a pod waits for the server.
	TimeoutMilliseconds int `json:"timeoutMilliseconds"`
	// PauseMilliseconds is how long the server is not asked after it failed; it doubles with each failure in a row.
	PauseMilliseconds int `json:"pauseMilliseconds"`
	// Events asks for an Event on each pod that was placed by a suggestion.
	Events bool `json:"events"`
	// CAFile has the authorities of the server's certificate; empty means those of the system.
	CAFile string `json:"caFile"`
	// CertFile and KeyFile are the certificate that is shown to the server.
	CertFile string `json:"certFile"`
	KeyFile  string `json:"keyFile"`
	// TokenFile has the bearer token that is sent to the server.
	TokenFile string `json:"tokenFile"`
}

func arguments(object runtime.Object) (Arguments, error) {
	found := Arguments{TimeoutMilliseconds: 100, PauseMilliseconds: 1000}
	unknown, ok := object.(*runtime.Unknown)
	if !ok || len(unknown.Raw) == 0 {
		return found, fmt.Errorf("pluginConfig %s: has no args; give it at least `url` of the suggestion server", Name)
	}
	decoder := json.NewDecoder(bytes.NewReader(unknown.Raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&found); err != nil {
		return found, fmt.Errorf("pluginConfig %s: args: %w; take what `rlscaler scheduler config --plugin` prints", Name, err)
	}
	address, err := url.Parse(found.URL)
	if err != nil || address.Host == "" || (address.Scheme != "http" && address.Scheme != "https") {
		return found, fmt.Errorf("pluginConfig %s: args.url %q is no http address; give one like http://127.0.0.1:8899", Name, found.URL)
	}
	if (found.CertFile == "") != (found.KeyFile == "") {
		return found, fmt.Errorf("pluginConfig %s: args.certFile and args.keyFile go together; add the other one, or remove both", Name)
	}
	if found.TimeoutMilliseconds <= 0 || found.PauseMilliseconds <= 0 {
		return found, fmt.Errorf("pluginConfig %s: args.timeoutMilliseconds and args.pauseMilliseconds have to be above 0", Name)
	}
	return found, nil
}

func (a Arguments) timeout() time.Duration {
	return time.Duration(a.TimeoutMilliseconds) * time.Millisecond
}

func (a Arguments) pause() time.Duration {
	return time.Duration(a.PauseMilliseconds) * time.Millisecond
}
