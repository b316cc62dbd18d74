package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"runtime/debug"

	"github.com/IBM/sarama"
)

// access is how a client gets in. Files are PEM; the certificate's has the key too.
type access struct {
	CA          string `json:"ca"`
	Certificate string `json:"certificate"`
	Mechanism   string `json:"mechanism"`
	User        string `json:"user"`
	Password    string `json:"password"`
	Bearer      string `json:"token"`
}

// Token makes it sarama's provider of tokens.
func (a access) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: a.Bearer}, nil
}

// tls is nil for a plain connection.
func (a access) tls() (*tls.Config, error) {
	if a.CA == "" {
		return nil, nil
	}
	authorities, err := os.ReadFile(a.CA)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(authorities) {
		return nil, errors.New("no certificate in " + a.CA)
	}
	if a.Certificate != "" {
		own, err := tls.LoadX509KeyPair(a.Certificate, a.Certificate)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

// versionOf is an operation that answers which version of a module was linked.
func versionOf(module string) operation {
	return func(*request) (any, error) {
		built, _ := debug.ReadBuildInfo()
		for _, linked := range built.Deps {
			if linked.Path == module {
				return linked.Version[1:], nil
			}
		}
		return nil, errors.New(module + " is not linked")
	}
}
