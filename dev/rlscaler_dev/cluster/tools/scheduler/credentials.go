package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// transport is the way to the server. Certificates are read anew for each connection, so that they may be renewed.
func (a Arguments) transport() (*http.Transport, error) {
	transport := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: a.timeout()}).DialContext,
		TLSHandshakeTimeout: a.timeout(),
		MaxIdleConnsPerHost: 2,
		IdleConnTimeout:     time.Minute,
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.CAFile != "" {
		text, err := os.ReadFile(a.CAFile)
		if err != nil {
			return nil, fmt.Errorf("pluginConfig %s: args.caFile: %w", Name, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("pluginConfig %s: args.caFile %s has no certificate in PEM; correct it", Name, a.CAFile)
		}
	}
	if a.CertFile != "" {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(a.CertFile, a.KeyFile)
			return &pair, err
		}
	}
	transport.TLSClientConfig = config
	return transport, nil
}

// authorize adds the token as it is now.
func (a Arguments) authorize(request *http.Request) error {
	if a.TokenFile == "" {
		return nil
	}
	text, err := os.ReadFile(a.TokenFile)
	if err != nil {
		return fmt.Errorf("pluginConfig %s: args.tokenFile: %w", Name, err)
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(text)))
	return nil
}
